from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.tools.toolkit.commands import TIMEOUT_S, TIMEOUT_S_MAX, Command, run_command
from services.tools.toolkit.tool import Tool, ToolContext

COMMAND_CHARS_MAX = 100_000
"""Linux takes 131,072 bytes for one argument."""

PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "maxLength": COMMAND_CHARS_MAX,
            "description": "Bash command line",
        },
        "timeoutMs": {
            "type": "integer",
            "minimum": 1,
            "maximum": int(TIMEOUT_S_MAX * 1000),
            "description": f"Greatest run time in milliseconds; without it {int(TIMEOUT_S * 1000)}",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    timeout_s = context.arguments.get("timeoutMs", TIMEOUT_S * 1000) / 1000
    command = Command(("bash", "-c", context.arguments["command"]), timeout_s=timeout_s)
    async with aclosing(run_command(context, command)) as deltas:
        async for delta in deltas:
            yield delta


TOOL = Tool(
    name="_bash_",
    description=(
        "Run a bash command line in the chat's workspace and get what it prints. There is no network unless "
        "https_proxy is set. Files of the system can be read, and nothing outside the workspace written: instead of "
        "/tmp use $HOME, which is emptied afterwards (export TMPDIR=$HOME for programs that insist). Files for the "
        "user belong into outputs/. Nothing keeps running when the command ends."
    ),
    parameters=json.dumps(PARAMETERS),
    effect="once",
    execute=execute,
    tier="discovered",
    begins_itself=True,
    needs=frozenset({"sandbox"}),
)
