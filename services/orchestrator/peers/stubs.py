"""Stubs of the peer services. Their calls bring deadlines, metadata, retries and our own errors with them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import grpc

from headrace.v1 import llm_pb2, memory_pb2, schedule_pb2, tools_pb2
from headrace.v1.llm_pb2_grpc import LlmServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from headrace.v1.schedule_pb2_grpc import ScheduleServiceStub
from headrace.v1.tools_pb2_grpc import ToolServiceStub
from services.orchestrator.peers.ttl_cache import TtlCache
from services.orchestrator.tape.taped_stub import tape_calls
from services.runtime.rpc.peer_calls import carry_metadata, complete_calls, repeat_until_answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub
    from headrace.v1.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from headrace.v1.tools_pb2_grpc import ToolServiceAsyncStub
    from services.runtime.auth.identity import Identity

UNARY_TIMEOUT_S = 30.0
"""An append waits for a disk."""

FRESH_S = 2.0
"""Changes of models, tools and skills are seen with this delay."""

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
"""Time in which a gateway restarts or another is found."""

TOOLS_WAITED_FOR = ("ListTools", "ListSkills", "LinkSkill")
"""Calls that wait for tools, which may be restarting; executions decide by the effect of what was cut off."""

TOOLS_BACK_S = 60.0
"""Time in which the tools service restarts or another is found."""

DISPENSABLE_S = 2.0
"""Time to wait for tools that an agent does not name: a run goes on without them."""


def limit_tools_wait(time_left_s: float, *, is_needed: bool) -> float:
    """Return the time to wait for tools: half of the run's at most, as the rest is for its work."""
    return min(TOOLS_BACK_S, max(DISPENSABLE_S, time_left_s / 2)) if is_needed else DISPENSABLE_S


@dataclass(frozen=True, slots=True)
class Peers:
    llm: LlmServiceAsyncStub
    stream_chat: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    memory: MemoryServiceAsyncStub
    tools: ToolServiceAsyncStub
    schedules: ScheduleServiceAsyncStub
    channels: Sequence[grpc.aio.Channel] = ()
    """The gateway's and that of tools."""
    models: TtlCache[tuple[str, str], Sequence[llm_pb2.ModelInfo]] = field(default_factory=partial(TtlCache, FRESH_S))
    tool_list: TtlCache[None, Sequence[tools_pb2.Tool]] = field(default_factory=partial(TtlCache, FRESH_S))
    """Those that are listed for everybody."""
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
        llm, schedules = LlmServiceStub(llm_gateway), ScheduleServiceStub(memory)
        for stub, service in ((llm, "LlmService"), (remembering, "MemoryService"), (offering, "ToolService")):
            tape_calls(stub, service)
        for stub, file in ((llm, llm_pb2), (remembering, memory_pb2), (offering, tools_pb2), (schedules, schedule_pb2)):
            [service] = file.DESCRIPTOR.services_by_name.values()
            complete_calls(stub, service, UNARY_TIMEOUT_S)
        return cls(llm, stream_chat, remembering, offering, schedules, (llm_gateway, tools))

    async def wait_for_gateway(self) -> None:
        await _wait_until_ready(self.channels[:1], GATEWAY_BACK_S)

    async def wait_for_tools(self, within_s: float) -> bool:
        """Return whether the tools service can be asked."""
        return await _wait_until_ready(self.channels[1:], within_s)

    async def wait_for_peers(self) -> None:
        """Wait for gateway and tools, which may start together with this process."""
        await _wait_until_ready(self.channels, UNARY_TIMEOUT_S)


async def _wait_until_ready(channels: Iterable[grpc.aio.Channel], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            for channel in channels:
                await channel.channel_ready()
    except TimeoutError:
        return False
    return True
