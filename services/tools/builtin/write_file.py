from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.toolkit.tool import Tool, ToolContext, make_result
from services.tools.workspace.file_work import run_in_thread

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Path in the workspace, for example outputs/a.md"},
        "content": {"type": "string", "description": "The file's whole content"},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, data = context.arguments["path"], context.arguments["content"].encode()
    workspace = await run_in_thread(path, context.open_workspace)
    await run_in_thread(path, lambda: workspace.write_file(path, data))
    yield make_result(f"wrote {len(data)} bytes to {path}")


TOOL = Tool(
    name="write_file",
    description=(
        "Write a text file into the chat's workspace, replacing what is there and making folders as needed. "
        "Files for the user belong into outputs/."
    ),
    parameters=json.dumps(PARAMETERS),
    effect="idempotent",
    execute=execute,
)
