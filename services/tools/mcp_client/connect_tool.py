"""The tool of a server that shows its own to nobody who has not authorized Headrace."""

from __future__ import annotations

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
    )
