"""Takes one call from its name to its result: look up the tool, validate the arguments, run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from time import monotonic

from prometheus_client import Histogram

from headrace.errors import NotFound
from headrace.v1 import tools_pb2
from services.runtime.auth.identity import current_tenant
from services.runtime.capacity import Capacity
from services.tools.catalogue.catalogue import Catalogue, CatalogueEntry
from services.tools.errors import CredentialNeeded, ToolFailed
from services.tools.execution.effect_guard import run_guarded
from services.tools.execution.effect_records import EffectRecords
from services.tools.execution.results import ArtifactPublisher
from services.tools.toolkit.tool import (
    ContextFactory,
    Tool,
    find_missing,
    make_result,
    parse_arguments,
)
from services.tools.workspace.workspace import Workspaces

SECONDS = Histogram(
    "headrace_tool_seconds",
    "From a call's begin to its end. `left`: it was cancelled, or broke off.",
    ("tool", "outcome"),
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300),
)


@dataclass(eq=False)
class Executor:
    catalogue: Catalogue
    workspaces: Workspaces
    effects: EffectRecords
    make_context: ContextFactory
    commands: Capacity
    """Running commands."""
    find_own_tools: Callable[[str], Awaitable[Iterable[Tool]]]
    """Returns the tools, listed by MCP servers only for the user, that a name may mean."""

    def __post_init__(self) -> None:
        self._outputs = ArtifactPublisher()

    async def execute(self, request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        """Stream the tool's output; exactly one result comes, last.

        Raises:
            NotFound: No tool has this name, or the chat is another user's.
            Overloaded: Too many commands are running, the same call is (effect_guard.py), or the disk refuses records.
        """
        entry = self.catalogue.find(request.tool_name)
        if entry is None:
            entry = self.catalogue.find(request.tool_name, await self.find_own_tools(request.tool_name))
        if entry is None:
            raise NotFound(f"tool {request.tool_name!r} does not exist", toolName=request.tool_name)
        await asyncio.to_thread(self.workspaces.register_chat, request.chat_id)
        is_command = "sandbox" in entry.tool.needs
        using_slot = self.commands.using_slot(current_tenant(), "commands are running already")
        with using_slot if is_command else nullcontext():
            started, outcome = monotonic(), "left"
            try:
                async with aclosing(self._run_tool(entry, request)) as deltas:
                    async for delta in deltas:
                        yield delta
                        if delta.HasField("result"):
                            outcome = "ok" if delta.result.ok else "failed"
            finally:
                SECONDS.labels(entry.tool.name, outcome).observe(monotonic() - started)

    async def _run_tool(
        self, entry: CatalogueEntry, request: tools_pb2.ExecuteRequest
    ) -> AsyncGenerator[tools_pb2.ToolDelta]:
        try:
            parsed = parse_arguments(request.arguments, entry.schemas)
        except ToolFailed as failure:
            yield make_result(str(failure), ok=False)
            return
        if (missing := find_missing(entry.tool)) is not None:
            yield missing.make_result("missing")
            return
        context = replace(self.make_context(request, parsed), credentials=entry.tool.credentials)
        guarded = run_guarded(self.effects, entry.tool, context)
        if entry.tool.effect != "read":
            guarded = self._outputs.publish_changes(context, guarded)
        try:
            async with aclosing(guarded) as deltas:
                async for delta in deltas:
                    if delta.HasField("result"):
                        delta.result.tool_params = request.arguments or "{}"
                    yield delta
        except CredentialNeeded as needed:
            refused = next(one for one in entry.tool.credentials if one.name == needed.name)
            yield refused.make_result(needed.problem)
