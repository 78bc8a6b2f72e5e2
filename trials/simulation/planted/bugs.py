"""Planted bugs, each of which the judges must find: wrappers around the services, which stay unchanged."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.v1 import agent_pb2, memory_pb2

BUGS = {
    "no sync": "appends are answered before they are on disk",
    "hidden disk error": "a failed sync is taken for one that was done",
    "no fencing": "memory takes lines of owners whose lease another one has",
    "no folder sync": "names of files are not on disk when they are taken for it",
    "forgotten request id": "an append that is repeated is made twice",
    "lost result": "a model is shown calls without a result",
    "lost take-over": "runs of dead owners are in no list",
    "forgotten effects": "the tools service forgets which effects it has had",
    "lost cancel": "a cancel is answered and not made",
    "lost steer": "a steer is answered and not made",
    "skipped event": "who attaches again misses the first event",
    "second decision": "a gate takes a second answer",
    "unasked call": "a call that needs approval runs without",
    "forgotten time": "what became of a schedule's time is not kept",
    "unlimited": "agents have no budget",
    "left task": "an orchestrator that stops leaves a task",
    "blind change": "a state is changed whatever its version is",
    "old state": "a state is read as it was first read",
    "lost vote": "a vote is answered and is in the log as something else",
    "lost share": "a chat is said to be shared, and is not",
    "lost pin": "a message is said to be pinned, and is not",
    "second copy": "a repeated request to copy a chat makes another copy",
    "lost closing": "who watches gates is not told that one is closed",
    "untold event": "an event that a webhook's receiver has not taken is not told again",
    "open purse": "no budget limits what all runs of an agent spend together",
    "taken while erased": "memory takes what is new of a user who is being erased",
    "kept claim": "an erasure stays with who began it, dead or alive",
    "same generation": "the next owner of a run has the generation of the one before",
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


class _ChangingBlindly(_Wrapped):
    async def UpdateState(self, request: memory_pb2.UpdateStateRequest, context: Any) -> Any:
        now = await self._real.GetState(
            memory_pb2.GetStateRequest(chat_id=request.chat_id, context_id=request.context_id), context
        )
        request.expected_version = now.version
        return await self._real.UpdateState(request, context)


class _ReadingOnce(_Wrapped):
    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self._known: dict[tuple[str, str], Any] = {}

    async def GetState(self, request: Any, context: Any) -> Any:
        key = request.chat_id, request.context_id
        if key not in self._known:
            self._known[key] = await self._real.GetState(request, context)
        return self._known[key]


class _RepeatingGenerations(_Wrapped):
    async def AcquireLease(self, request: Any, context: Any) -> Any:
        answer = await self._real.AcquireLease(request, context)
        answer.generation = max(1, answer.generation - 1)
        return answer

    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> Any:
        request.generation += bool(request.generation)
        return await self._real.Append(request, context)


class _LosingVotes(_Wrapped):
    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> Any:
        for line in request.lines:
            if line.HasField("event") and line.event.event.gate_step.step == "vote":
                line.event.event.gate_step.step = "asked_back"
        return await self._real.Append(request, context)


class _LosingShares(_Wrapped):
    async def ShareChat(self, request: memory_pb2.ShareChatRequest, context: Any) -> Any:
        return memory_pb2.ShareChatResponse(shared_with=request.shared_with)


class _LosingPins(_Wrapped):
    async def PinMessage(self, request: Any, context: Any) -> Any:
        return memory_pb2.PinMessageResponse(n=request.n)


class _CopyingTwice(_Wrapped):
    async def ForkChat(self, request: Any, context: Any) -> Any:
        request.request_id = ""
        return await self._real.ForkChat(request, context)


class _ForgettingTimes(_Wrapped):
    async def RecordFiring(self, request: Any, context: Any) -> Any:
        return await self._real.GetSchedule(request, context)


MEMORY_BUGS: dict[str, Callable[[Any], Any]] = {
    "no fencing": _WithoutFencing,
    "forgotten request id": _ForgettingRequests,
    "lost result": _LosingResults,
    "lost take-over": _HidingRuns,
    "blind change": _ChangingBlindly,
    "old state": _ReadingOnce,
    "same generation": _RepeatingGenerations,
    "lost vote": _LosingVotes,
    "lost share": _LosingShares,
    "lost pin": _LosingPins,
    "second copy": _CopyingTwice,
}


class _ClaimingOnce(_Wrapped):
    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self._claimed: set[str] = set()

    async def ClaimErasures(self, request: Any, context: Any) -> Any:
        answer = await self._real.ClaimErasures(request, context)
        for number in reversed(range(len(answer.erasures))):
            if answer.erasures[number].erasure_id in self._claimed:
                del answer.erasures[number]
        self._claimed |= {erasure.erasure_id for erasure in answer.erasures}
        return answer


DATA_BUGS: dict[str, Callable[[Any], Any]] = {"kept claim": _ClaimingOnce}

SCHEDULE_BUGS: dict[str, Callable[[Any], Any]] = {"forgotten time": _ForgettingTimes}


class _LosingCancels(_Wrapped):
    async def Cancel(self, request: agent_pb2.CancelRequest, **_: Any) -> agent_pb2.CancelResponse:
        return agent_pb2.CancelResponse(run_id=request.run_id, state="running")


class _LosingSteers(_Wrapped):
    async def Steer(self, request: agent_pb2.SteerRequest, **_: Any) -> agent_pb2.SteerResponse:
        return agent_pb2.SteerResponse(run_id=request.run_id, status="accepted")


class _SkippingEvents(_Wrapped):
    def Attach(self, request: agent_pb2.AttachRequest) -> Any:
        return self._real.Attach(agent_pb2.AttachRequest(run_id=request.run_id, last_seq=request.last_seq + 1))


class _DecidingTwice(_Wrapped):
    async def Submit(self, request: agent_pb2.SubmitRequest, **options: Any) -> agent_pb2.SubmitResponse:
        answer = await self._real.Submit(request, **options)
        if answer.status == "duplicate":
            answer.status, answer.accepted = "accepted", True
        return answer


USER_BUGS: dict[str, Callable[[Any], Any]] = {
    "lost cancel": _LosingCancels,
    "lost steer": _LosingSteers,
    "skipped event": _SkippingEvents,
    "second decision": _DecidingTwice,
}
