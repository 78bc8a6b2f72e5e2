"""One call from its name to its result: look up, validate, perform. What the model can act on ends as a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from headrace.errors import NotFound, Overloaded
from headrace.v1 import tools_pb2
from services.tools import metrics
from services.tools.catalogue.catalogue import Catalogue, Offered
from services.tools.errors import ToolFailed
from services.tools.execution.artifacts import Outputs
from services.tools.execution.effect_guard import perform
from services.tools.execution.effect_records import Effects
from services.tools.sandbox.tier import Sandbox
from services.tools.toolkit import arguments
from services.tools.toolkit.tool import Call, Tool, result
from services.tools.workspace.workspace import Workspaces

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.tools.interpreter.pool import Interpreters
    from services.tools.web.web import Web


class Executor:
    """Executes calls; one for the service, shared by all its RPCs."""

    def __init__(
        self,
        catalogue: Catalogue,
        workspaces: Workspaces,
        effects: Effects,
        sandbox: Sandbox,
        llm: LlmServiceAsyncStub,
        web: Web,
        interpreters: Interpreters,
        commands_max: int,
    ) -> None:
        self._catalogue = catalogue
        self._workspaces = workspaces
        self._effects = effects
        self._sandbox = sandbox
        self._llm = llm
        self._web = web
        self._interpreters = interpreters
        self._commands_max = commands_max
        self._outputs = Outputs(workspaces)
        self._commands = 0

    async def execute(self, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        """Stream what the tool does; exactly one result, last.

        Raises:
            NotFound: No tool has this name, or the chat is another user's.
            Overloaded: As many commands as may run are running, or this very call is; see performing.py.
        """
        offered = self._catalogue.find(request.tool_name)
        if offered is None:
            raise NotFound(f"tool {request.tool_name!r} does not exist", toolName=request.tool_name)
        await asyncio.to_thread(self._workspaces.claim, request.chat_id)
        with self._place(offered.tool), metrics.timed(offered.tool.name) as timing:
            async with aclosing(self._run(offered, request)) as deltas:
                async for delta in deltas:
                    yield delta
                    timing.last = delta

    async def _run(self, offered: Offered, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        try:
            given = arguments.parse(request.arguments, offered.schemas)
        except ToolFailed as failure:
            yield result(str(failure), ok=False)
            return
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms > 0 else None
        call = Call(
            given,
            request.chat_id,
            self._workspaces,
            self._sandbox,
            timeout_s,
            request,
            self._llm,
            self._web,
            self._interpreters,
        )
        performed = perform(self._effects, offered.tool, call)
        if offered.tool.effect != "read":
            performed = self._outputs.publishing(call, performed)
        async with aclosing(performed) as deltas:
            async for delta in deltas:
                if delta.HasField("result"):
                    delta.result.tool_params = request.arguments or "{}"
                yield delta

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
