"""The real memory, with hooks that observe or refuse its calls."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2

OnAppend: TypeAlias = Callable[[memory_pb2.AppendRequest], Awaitable[None]]


class WatchedMemory:
    """The real memory; a test's `before` and `after` are awaited around each Append."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.before: OnAppend = pass_on
        self.after: OnAppend = pass_on
        self.before_release: Callable[[memory_pb2.ReleaseLeaseRequest], Awaitable[None]] = pass_on
        self.before_acquire: Callable[[memory_pb2.AcquireLeaseRequest], Awaitable[None]] = pass_on
        self.context_error: HeadraceError | None = None
        self.loads: list[memory_pb2.LoadContextRequest] = []
        self.compaction: list[memory_pb2.CompactDelta | HeadraceError] = []
        """Steps of Compact instead of the real ones; empty: the real ones."""
        self.compact_requests: list[memory_pb2.CompactRequest] = []
        self.keeps_versions = True
        """False: behave like an earlier version, without agent versions to which runs are pinned."""
        self.versions: list[memory_pb2.PutAgentVersionRequest] = []
        self.titles: list[memory_pb2.UpdateChatResponse] = []
        """The reply of each UpdateChat."""
        self.taken_back: set[str] = set()
        """Runs whose end is visible once, as before a database's fail-over takes it back."""
        self.facts_error: HeadraceError | None = None
        """The error with which Remember and RecallFacts fail."""
        self.recalls: list[memory_pb2.RecallFactsRequest] = []
        self.remembered: list[memory_pb2.RememberRequest] = []
        """All Remember requests, including those refused with `facts_error`."""

    def __getattr__(self, rpc: str) -> Any:
        return getattr(self._real, rpc)

    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> memory_pb2.AppendResponse:
        await self.before(request)
        answer = await self._real.Append(request, context)
        await self.after(request)
        return answer

    async def BeginRun(self, request: memory_pb2.BeginRunRequest, context: Any) -> memory_pb2.BeginRunResponse:
        if request.HasField("context"):
            self.loads.append(request.context)
            if self.context_error is not None:
                request.ClearField("context")  # The context is requested once more, and fails then.
        await self.before(request.append)
        answer = await self._real.BeginRun(request, context)
        await self.after(request.append)
        return answer

    async def AcquireLease(
        self, request: memory_pb2.AcquireLeaseRequest, context: Any
    ) -> memory_pb2.AcquireLeaseResponse:
        await self.before_acquire(request)
        return await self._real.AcquireLease(request, context)

    async def ReleaseLease(
        self, request: memory_pb2.ReleaseLeaseRequest, context: Any
    ) -> memory_pb2.ReleaseLeaseResponse:
        await self.before_release(request)
        return await self._real.ReleaseLease(request, context)

    async def PutAgentVersion(
        self, request: memory_pb2.PutAgentVersionRequest, context: Any
    ) -> memory_pb2.PutAgentVersionResponse:
        self.versions.append(request)
        if not self.keeps_versions:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        return await self._real.PutAgentVersion(request, context)

    async def UpdateChat(self, request: memory_pb2.UpdateChatRequest, context: Any) -> memory_pb2.UpdateChatResponse:
        answer = await self._real.UpdateChat(request, context)
        self.titles.append(answer)
        return answer

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Any
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        if request.run_id in self.taken_back:
            self.taken_back.discard(request.run_id)
            return memory_pb2.ListUnfinishedRunsResponse()
        return await self._real.ListUnfinishedRuns(request, context)

    async def Remember(self, request: memory_pb2.RememberRequest, context: Any) -> memory_pb2.RememberResponse:
        self.remembered.append(request)
        if self.facts_error is not None:
            raise self.facts_error
        return await self._real.Remember(request, context)

    async def RecallFacts(self, request: memory_pb2.RecallFactsRequest, context: Any) -> memory_pb2.RecallFactsResponse:
        self.recalls.append(request)
        if self.facts_error is not None:
            raise self.facts_error
        return await self._real.RecallFacts(request, context)

    async def LoadContext(self, request: memory_pb2.LoadContextRequest, context: Any) -> memory_pb2.LoadContextResponse:
        self.loads.append(request)
        if self.context_error is not None:
            raise self.context_error
        return await self._real.LoadContext(request, context)

    async def Compact(
        self, request: memory_pb2.CompactRequest, context: Any
    ) -> AsyncGenerator[memory_pb2.CompactDelta]:
        self.compact_requests.append(request)
        if not self.compaction:
            async with aclosing(self._real.Compact(request, context)) as deltas:
                async for delta in deltas:
                    yield delta
        for step in self.compaction:
            if isinstance(step, HeadraceError):
                raise step
            yield step


def has_line(request: memory_pb2.AppendRequest, kind: str) -> bool:
    """Return whether one of the lines is of this kind, or has an event of this kind."""
    kinds = {(line.WhichOneof("line"), line.event.event.WhichOneof("payload")) for line in request.lines}
    return any(kind in pair for pair in kinds)


class Refusal:
    """Refuses the first appends that have a line of this kind, each with the next error."""

    def __init__(self, kind: str, *errors: Exception) -> None:
        self._kind = kind
        self.left = [*errors]

    async def __call__(self, request: memory_pb2.AppendRequest) -> None:
        if self.left and has_line(request, self._kind):
            raise self.left.pop(0)


async def pass_on(request: object) -> None:
    pass
