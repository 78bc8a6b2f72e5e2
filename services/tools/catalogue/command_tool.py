"""Makes tools of the commands in definition files."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from headrace.v1 import tools_pb2
from services.tools.catalogue.definitions import EMPTY_SCHEMA, Definition
from services.tools.toolkit.commands import Command, run_command
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.credentials import make_environment
from services.tools.toolkit.tool import Tool


def make_command_tool(definition: Definition, folder: Path) -> Tool:
    """Makes the tool of a command, whose arguments that name files of `folder` become absolute."""
    assert definition.command is not None
    folder = folder.resolve()
    arguments = tuple(
        str(folder / argument) if (folder / argument).is_file() else argument for argument in definition.command
    )

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        arguments_json = json.dumps(context.arguments, ensure_ascii=False)
        needed = context.credentials
        command = Command(
            arguments,
            input=arguments_json,
            readable=(str(folder),),
            environment=make_environment(needed),
            credential=needed[0].name if needed else "",
            shown="stdout",
        )
        async with aclosing(run_command(context, command)) as deltas:
            async for delta in deltas:
                yield delta

    return Tool(
        name=definition.name,
        description=definition.description or "",
        parameters=json.dumps(definition.parameters or EMPTY_SCHEMA, ensure_ascii=False),
        effect=definition.effect or "once",
        execute=execute,
        tier="enabled",
        begins_itself=True,
        after_call_hint=definition.after_call_hint or "",
        needs=frozenset({"sandbox"}),
        approval=definition.approval,
        answerers=definition.make_answerers(),
    )
