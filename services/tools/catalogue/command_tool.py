"""A user's own tool: a command from a definition file as a Tool."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from headrace.v1 import tools_pb2
from services.tools.catalogue.definitions import EMPTY_SCHEMA, Definition
from services.tools.toolkit.commands import Command, run_command
from services.tools.toolkit.tool import Call, Tool


def own_tool(definition: Definition, folder: Path) -> Tool:
    """The tool whose definition has a `command`, kept in `folder`."""
    assert definition.command is not None
    folder = folder.resolve()
    arguments = tuple(_located(argument, folder) for argument in definition.command)

    async def execute(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
        given = json.dumps(call.arguments, ensure_ascii=False)
        command = Command(arguments, input=given, readable=(str(folder),), shown="stdout")
        async with aclosing(run_command(call, command)) as deltas:
            async for delta in deltas:
                yield delta

    return Tool(
        name=definition.name,
        description=definition.description or "",
        parameters=json.dumps(definition.parameters or EMPTY_SCHEMA, ensure_ascii=False),
        effect=definition.effect or "once",
        execute=execute,
        tier="enabled",
        after_call_hint=definition.after_call_hint or "",
        is_command=True,
        approval=definition.approval,
    )


def _located(argument: str, folder: Path) -> str:
    path = folder / argument
    return str(path) if path.is_file() else argument
