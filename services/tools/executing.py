"""One call from its name to its result: look up, validate, run. What the model can act on ends as a result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from headrace.errors import NotFound, Overloaded
from headrace.v1 import tools_pb2
from services.tools import arguments
from services.tools.catalogue import Catalogue, Offered
from services.tools.sandbox.selftest import Sandbox
from services.tools.tool import Call, Tool, ToolFailed, result
from services.tools.workspace import Workspaces

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub


class Executor:
    """Executes calls; one for the service, shared by all its RPCs."""

    def __init__(
        self,
        catalogue: Catalogue,
        workspaces: Workspaces,
        sandbox: Sandbox,
        llm: LlmServiceAsyncStub,
        commands_max: int,
    ) -> None:
        self._catalogue = catalogue
        self._workspaces = workspaces
        self._sandbox = sandbox
        self._llm = llm
        self._commands_max = commands_max
        self._commands = 0

    async def execute(self, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        """Stream what the tool does; exactly one result, last.

        Raises:
            NotFound: No tool has this name.
            Overloaded: As many commands as may run are running.
        """
        offered = self._catalogue.find(request.tool_name)
        if offered is None:
            raise NotFound(f"tool {request.tool_name!r} does not exist", toolName=request.tool_name)
        with self._place(offered.tool):
            async with aclosing(self._run(offered, request)) as deltas:
                async for delta in deltas:
                    yield delta

    async def _run(self, offered: Offered, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        tool_params: str | None = None
        try:
            given = arguments.parse(request.arguments, offered.schemas)
            tool_params = request.arguments or "{}"
            timeout_s = request.timeout_ms / 1000 if request.timeout_ms > 0 else None
            call = Call(given, request.chat_id, self._workspaces, self._sandbox, timeout_s, request, self._llm)
            async with aclosing(offered.tool.execute(call)) as deltas:
                async for delta in deltas:
                    yield _with_params(delta, tool_params)
        except ToolFailed as failure:
            yield _with_params(result(str(failure), ok=False), tool_params)

    @contextmanager
    def _place(self, tool: Tool) -> Generator[None]:
        """A place among the running commands, for a tool that is one."""
        if tool.is_command and self._commands >= self._commands_max:
            raise Overloaded(f"{self._commands_max} commands are running already; try again later")
        self._commands += tool.is_command
        try:
            yield
        finally:
            self._commands -= tool.is_command


def _with_params(delta: tools_pb2.ToolDelta, tool_params: str | None) -> tools_pb2.ToolDelta:
    """The delta, which when it is the result says what ran; None: nothing did."""
    if tool_params is not None and delta.HasField("result"):
        delta.result.tool_params = tool_params
    return delta
