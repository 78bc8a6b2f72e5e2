"""Ten planted bugs, each of which the judges must find: none is in the services, all are put around them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.v1 import agent_pb2, memory_pb2

if TYPE_CHECKING:
    from tests.simulation.world.world import World

BUGS = {
    "no sync": "appends are answered before they are on disk",
    "hidden disk error": "a failed sync is taken for one that was done",
    "no fencing": "memory takes lines of owners whose lease another one has",
    "forgotten request id": "an append that is repeated is made twice",
    "lost result": "a model is shown calls without a result",
    "lost take-over": "runs of dead owners are in no list",
    "forgotten effects": "the tools service forgets which effects it has had",
    "lost cancel": "a cancel is answered and not made",
    "lost steer": "a steer is answered and not made",
    "skipped event": "who attaches again misses the first event",
}


class _Wrapped:
    """A servicer or stub with some methods replaced."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _WithoutFencing(_Wrapped):
    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self._newest: Counter[str] = Counter()

    async def AcquireLease(self, request: Any, context: Any) -> Any:
        answer = await self._real.AcquireLease(request, context)
        self._newest[request.run_id] = max(self._newest[request.run_id], answer.generation)
        return answer

    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> Any:
        request.generation = max(request.generation, self._newest[request.run_id])
        return await self._real.Append(request, context)


class _ForgettingRequests(_Wrapped):
    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> Any:
        first = request.lines[0]
        if not first.HasField("query"):
            # An id that the log does not know, of the same form.
            request.request_id = (
                f"{asyncio.get_running_loop().time():012.6f}".replace(".", "0")[:8].zfill(8) + (request.request_id[8:])
            )
        return await self._real.Append(request, context)


class _LosingResults(_Wrapped):
    async def LoadContext(self, request: Any, context: Any) -> Any:
        answer = await self._real.LoadContext(request, context)
        for number, message in enumerate(answer.messages):
            if message.role == "tool":
                del answer.messages[number]
                break
        return answer


class _HidingRuns(_Wrapped):
    async def ListUnfinishedRuns(self, request: Any, context: Any) -> Any:
        answer = await self._real.ListUnfinishedRuns(request, context)
        for number in reversed(range(len(answer.runs))):
            if not request.run_id and answer.runs[number].lease_expires_at:
                del answer.runs[number]
        return answer


MEMORY_BUGS: dict[str, Callable[[Any], Any]] = {
    "no fencing": _WithoutFencing,
    "forgotten request id": _ForgettingRequests,
    "lost result": _LosingResults,
    "lost take-over": _HidingRuns,
}


class _LosingCancels(_Wrapped):
    async def Cancel(self, request: agent_pb2.CancelRequest, **_: Any) -> agent_pb2.CancelResponse:
        return agent_pb2.CancelResponse(run_id=request.run_id, state="running")


class _LosingSteers(_Wrapped):
    async def Steer(self, request: agent_pb2.SteerRequest, **_: Any) -> agent_pb2.SteerResponse:
        return agent_pb2.SteerResponse(run_id=request.run_id, status="accepted")


class _SkippingEvents(_Wrapped):
    def Attach(self, request: agent_pb2.AttachRequest) -> Any:
        return self._real.Attach(agent_pb2.AttachRequest(run_id=request.run_id, last_seq=request.last_seq + 1))


USER_BUGS: dict[str, Callable[[Any], Any]] = {
    "lost cancel": _LosingCancels,
    "lost steer": _LosingSteers,
    "skipped event": _SkippingEvents,
}


def plant(world: World, bug: str) -> None:
    """Make the world have the bug; empty: none."""
    world.bug = bug
    world.storage.faults.skips_syncs = bug == "no sync"
    world.storage.faults.hides_errors = bug == "hidden disk error"
    world.outside.forgets_effects = bug == "forgotten effects"
