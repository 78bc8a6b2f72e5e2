"""The RPCs of ToolService that exist so far; the others are answered UNIMPLEMENTED by the base class."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from headrace.errors import NotFound
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.tools.catalogue import Catalogue
from services.tools.commands import unavailable
from services.tools.executing import Executor
from services.tools.sandbox.selftest import Sandbox
from services.tools.tool import Tool


class ToolService(tools_pb2_grpc.ToolServiceServicer):
    """Shared by all calls."""

    def __init__(self, catalogue: Catalogue, executor: Executor, sandbox: Sandbox) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._sandbox = sandbox

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        wanted = {name.casefold() for name in request.names}
        tools = [tool for tool in self._catalogue.tools() if not wanted or tool.name.casefold() in wanted]
        return tools_pb2.ListToolsResponse(tools=[self._message(tool) for tool in tools])

    async def GetTool(self, request: tools_pb2.GetToolRequest, context: Any) -> tools_pb2.GetToolResponse:
        offered = self._catalogue.find(request.tool_name)
        if offered is None:
            raise NotFound(f"tool {request.tool_name!r} does not exist", toolName=request.tool_name)
        return tools_pb2.GetToolResponse(tool=self._message(offered.tool))

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        async with aclosing(self._executor.execute(request)) as deltas:
            async for delta in deltas:
                yield delta

    def _message(self, tool: Tool) -> tools_pb2.Tool:
        refused = tool.is_command and self._sandbox.tier is None
        return tools_pb2.Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            kind="backend",
            tier=tool.tier,
            effect=tool.effect,
            after_call_hint=tool.after_call_hint or None,
            unavailable=unavailable(self._sandbox.problem) if refused else None,
        )
