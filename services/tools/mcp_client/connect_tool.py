"""What users without a list of their own call, of a server that lists its tools for those who have authorized it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.mcp_client.tool_calls import SessionSource, authorizing
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.tool import Tool, make_result


def make_connect_tool(server: SessionSource) -> Tool:

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        await context.begin()
        async with server.borrow_session(await server.find_authorization(context)):
            yield make_result(f"{server.name} is connected; its tools are there from the next run on")

    return Tool(
        name=f"{server.name}__connect",
        description=f"Have the user authorize the use of {server.name}, which shows its tools after that alone.",
        parameters=json.dumps({"type": "object", "properties": {}, "additionalProperties": False}),
        effect="idempotent",
        execute=authorizing(server, execute),
        tier="enabled",
        begins_itself=True,
        may_ask=True,
        category="mcp",
        server=server.name,
        is_per_user=True,
    )


def make_unlisted_tool(server: SessionSource, name: str) -> Tool:
    """Make the tool `name` of a user who does not see it now, but may have when the run began: it asks to authorize."""

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        async with server.borrow_session(await server.find_authorization(context)):
            yield make_result(f"MCP server {server.name!r} does not list this tool now", ok=False)

    return dataclasses.replace(
        make_connect_tool(server),
        name=name,
        parameters=json.dumps({"type": "object"}),
        execute=authorizing(server, execute),
    )
