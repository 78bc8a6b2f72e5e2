"""Stubs of the peer services. Their calls include deadlines, metadata, retries and our own errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc
import structlog

from headrace.errors import ProviderUnavailable
from headrace.v1 import data_pb2, llm_pb2, memory_pb2, schedule_pb2, tools_pb2
from headrace.v1.data_pb2_grpc import DataStoreServiceStub
from headrace.v1.llm_pb2_grpc import LlmServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from headrace.v1.schedule_pb2_grpc import ScheduleServiceStub
from headrace.v1.tools_pb2_grpc import ToolServiceStub
from services.orchestrator.peers.recorder import RECORDER, record_calls
from services.runtime.clock import monotonic_s
from services.runtime.newest import NewestDict
from services.runtime.rpc.peer_calls import carry_metadata, complete_calls, repeat_until_answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.v1.data_pb2_grpc import DataStoreServiceAsyncStub
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub
    from headrace.v1.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from headrace.v1.tools_pb2_grpc import ToolServiceAsyncStub
    from services.runtime.auth.identity import Identity


RETRY_DELAY_S = 0.2

T = TypeVar("T")

log = structlog.get_logger()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except ProviderUnavailable:
            log.debug("waiting for memory")
            await asyncio.sleep(RETRY_DELAY_S)


K = TypeVar("K")
V = TypeVar("V")

ANSWERS_MAX = 1000
"""Maximum cached answers; most provider files have fewer models."""


class TtlCache(Generic[K, V]):
    """A cache of answers with a maximum age. Callers must not modify cached answers."""

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._answers: NewestDict[K, tuple[float, V]] = NewestDict(ANSWERS_MAX)

    def is_known(self, question: K) -> bool:
        """Return whether `get_or_ask` can answer without a request now."""
        known = self._answers.get(question)
        # A recorded run always asks, so that its recording contains all answers it uses.
        return RECORDER.get() is None and known is not None and monotonic_s() - known[0] < self._age_s

    def find_last(self, question: K) -> V | None:
        """Return the last answer, however old; None without one."""
        known = self._answers.get(question)
        return known and known[1]

    async def get_or_ask(self, question: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return a cached or new answer; an empty one is not cached, because data may appear at any moment."""
        if self.is_known(question):
            return self._answers[question][1]
        answer = await ask()
        known = self._answers.pop(question, None)
        if known is not None and known[1] == answer:
            answer = known[1]  # what was made from it remains good
        if answer:
            self._answers[question] = monotonic_s(), answer
        return answer


UNARY_TIMEOUT_S = 30.0
"""Default deadline; an append waits for a disk."""

FRESH_S = 2.0
"""Maximum delay before changes of models, tools and skills are seen."""

STREAM_CHAT = "/headrace.v1.LlmService/StreamChat"

WAITED_FOR = (
    *(
        "Append",
        "BeginRun",
        "LoadContext",
        "ReadHistory",
        "ReadResult",
        "GetState",
        "UpdateState",
        "GetChat",
        "PutBlob",
        "Revert",
    ),
    *("Remember", "RecallFacts", "DeleteFact", "ListGates", "GetGate", "ListGrants", "ListRuns", "ReserveSpend"),
    *("PutAgentVersion", "ReadAgentVersion", "FindAgentVersions"),
    *("ListUnfinishedRuns", "AcquireLease", "RenewLeases", "ReleaseLease"),
)
"""Calls that wait for memory, which may be restarting."""

GATEWAY_BACK_S = 10.0
"""Time for a gateway to restart or another to be found."""

TOOLS_WAITED_FOR = ("ListTools", "ListSkills", "LinkSkill")
"""Calls that wait for tools, which may be restarting; an interrupted execution is repeated according to its effect."""

TOOLS_BACK_S = 60.0
"""Time for the tools service to restart or another to be found."""

DISPENSABLE_S = 2.0
"""Time to wait for tools that an agent does not name; the run continues without them."""


def limit_tools_wait(time_left_s: float, *, is_needed: bool) -> float:
    """Return the time to wait for tools, at most half of the run's time, so that the rest remains for its work."""
    return min(TOOLS_BACK_S, max(DISPENSABLE_S, time_left_s / 2)) if is_needed else DISPENSABLE_S


@dataclass(frozen=True, slots=True)
class Peers:
    llm: LlmServiceAsyncStub
    stream_chat: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    memory: MemoryServiceAsyncStub
    tools: ToolServiceAsyncStub
    schedules: ScheduleServiceAsyncStub
    data: DataStoreServiceAsyncStub
    channels: Sequence[grpc.aio.Channel] = ()
    """Channels of the gateway and of tools, in this order."""
    models: TtlCache[tuple[str, str], Sequence[llm_pb2.ModelInfo]] = field(default_factory=partial(TtlCache, FRESH_S))
    tool_list: TtlCache[None, Sequence[tools_pb2.Tool]] = field(default_factory=partial(TtlCache, FRESH_S))
    """Tools that are listed for everyone."""
    user_tools: TtlCache[Identity, Sequence[tools_pb2.Tool]] = field(default_factory=partial(TtlCache, FRESH_S))
    """Tools that an MCP server lists for one user only."""
    skill_list: TtlCache[None, tools_pb2.ListSkillsResponse] = field(default_factory=partial(TtlCache, FRESH_S))

    @classmethod
    def from_channels(
        cls, *, llm_gateway: grpc.aio.Channel, memory: grpc.aio.Channel, tools: grpc.aio.Channel
    ) -> Peers:
        remembering = MemoryServiceStub(memory)
        for name in WAITED_FOR:
            setattr(remembering, name, repeat_until_answered(getattr(remembering, name)))
        offering = ToolServiceStub(tools)
        for name in TOOLS_WAITED_FOR:
            setattr(offering, name, repeat_until_answered(getattr(offering, name)))
        stream_chat = carry_metadata(llm_gateway.unary_stream(STREAM_CHAT))
        llm, schedules, data = LlmServiceStub(llm_gateway), ScheduleServiceStub(memory), DataStoreServiceStub(memory)
        for stub, file in ((llm, llm_pb2), (remembering, memory_pb2), (offering, tools_pb2)):
            [service] = file.DESCRIPTOR.services_by_name.values()
            record_calls(stub, service)
            complete_calls(stub, service, UNARY_TIMEOUT_S)
        for stub, file, name in ((schedules, schedule_pb2, "ScheduleService"), (data, data_pb2, "DataStoreService")):
            complete_calls(stub, file.DESCRIPTOR.services_by_name[name], UNARY_TIMEOUT_S)
        return cls(llm, stream_chat, remembering, offering, schedules, data, (llm_gateway, tools))

    async def wait_for_gateway(self) -> None:
        await _wait_until_ready(self.channels[:1], GATEWAY_BACK_S)

    async def wait_for_tools(self, within_s: float) -> bool:
        """Wait for the tools service; return whether it is reachable."""
        return await _wait_until_ready(self.channels[1:], within_s)

    async def wait_for_peers(self) -> None:
        """Wait for gateway and tools, which may start along with this process."""
        await _wait_until_ready(self.channels, UNARY_TIMEOUT_S)


async def _wait_until_ready(channels: Iterable[grpc.aio.Channel], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            for channel in channels:
                await channel.channel_ready()
    except TimeoutError:
        return False
    return True
