"""The services the orchestrator calls, and what every call to them is given."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import grpc

from headrace.errors import ProviderUnavailable, asked_of
from headrace.streams import rpc_errors
from headrace.v1.llm_pb2_grpc import LlmServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from headrace.v1.tools_pb2_grpc import ToolServiceStub
from services.orchestrator.peers.reconnect import repeat_once, repeat_until_answered
from services.orchestrator.peers.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from headrace.v1 import llm_pb2, tools_pb2
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub
    from headrace.v1.tools_pb2_grpc import ToolServiceAsyncStub

UNARY_TIMEOUT_S = 30.0
"""For a unary call to memory or tools; an append waits for a disk, so it is not short."""

FRESH_S = 2.0
"""How long runs rely on what there was of models, tools and skills; changed files are not seen sooner either."""

STREAM_CHAT = "/headrace.v1.LlmService/StreamChat"

WAITED_FOR = (
    *("Append", "LoadContext", "GetState", "UpdateState", "GetChat", "PutBlob", "Revert"),
    *("ListUnfinishedRuns", "AcquireLease", "RenewLease", "ReleaseLease"),
)
"""What a run asks memory, and its owner of the runs there are."""

GATEWAY_BACK_S = 10.0
"""For a gateway to start again, or for a turn in the middle of its answer to find another."""

ASKED_TWICE = ("ListTools", "ListSkills", "LinkSkill")
"""What a run asks tools before its first turn."""


@contextmanager
def translating_peer_errors() -> Generator[None]:
    """Raise what the called peer raised; one that does not answer in time is ProviderUnavailable, as one away is."""
    try:
        with rpc_errors():
            yield
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise ProviderUnavailable(f"{asked_of(error)} did not answer in time; try again") from error


@dataclass(frozen=True, slots=True)
class Peers:
    """Stubs over one channel each, shared by all runs."""

    llm: LlmServiceAsyncStub
    stream_chat: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    """StreamChat, whose request and deltas are as the wire has them."""
    memory: MemoryServiceAsyncStub
    tools: ToolServiceAsyncStub
    channels: Sequence[grpc.aio.Channel] = ()
    """Of those that no call waits for, the gateway first."""
    models: TtlCache[tuple[str, str], Sequence[llm_pb2.ModelInfo]] = field(default_factory=partial(TtlCache, FRESH_S))
    """What the gateway said of models, by provider and name."""
    tool_list: TtlCache[None, Sequence[tools_pb2.Tool]] = field(default_factory=partial(TtlCache, FRESH_S))
    skill_list: TtlCache[None, tools_pb2.ListSkillsResponse] = field(default_factory=partial(TtlCache, FRESH_S))

    @classmethod
    def from_channels(
        cls, *, llm_gateway: grpc.aio.Channel, memory: grpc.aio.Channel, tools: grpc.aio.Channel
    ) -> Peers:
        """The stubs of these channels, which stay the caller's. A memory that restarts is waited for: runs go on."""
        remembering = MemoryServiceStub(memory)
        for name in WAITED_FOR:
            setattr(remembering, name, repeat_until_answered(getattr(remembering, name)))
        offering = ToolServiceStub(tools)
        for name in ASKED_TWICE:
            setattr(offering, name, repeat_once(getattr(offering, name)))
        stream_chat = llm_gateway.unary_stream(STREAM_CHAT)
        llm = LlmServiceStub(llm_gateway)
        return cls(llm, stream_chat, remembering, offering, (llm_gateway, tools))

    async def wait_for_gateway(self) -> None:
        """Wait until one is there: it may be restarting. For a while; the next call says if it is not."""
        await _wait_until_ready(self.channels[:1], GATEWAY_BACK_S)

    async def wait_for_peers(self) -> None:
        """Wait until all are there: those of one machine start at the same time. For a while; calls say what is not."""
        await _wait_until_ready(self.channels, UNARY_TIMEOUT_S)


async def _wait_until_ready(channels: Iterable[grpc.aio.Channel], within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            for channel in channels:
                await channel.channel_ready()
