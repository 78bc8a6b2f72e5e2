"""A peer that is away for a while is waited for, or asked twice; what it says itself is an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.errors import ProviderUnavailable
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2, memory_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.peer_calls import repeat_until_answered
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.http2.ends import code_of

REQUEST = memory_pb2.ListUnfinishedRunsRequest()


class Breaking(memory_pb2_grpc.MemoryServiceServicer):
    """Its connection breaks twice, as far as a caller can see; then it answers, or says that it cannot."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self._error = error

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Any
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        self.calls += 1
        if self.calls <= 2:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        if self._error is not None:
            raise self._error
        return memory_pb2.ListUnfinishedRunsResponse()


def served(servicer: Any) -> GrpcService:
    return GrpcService("headrace.v1.MemoryService", servicer, memory_pb2_grpc.add_MemoryServiceServicer_to_server)


async def test_a_call_waits_for_a_peer_that_comes_back(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/m.sock"
    servicer = Breaking()  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    async with asyncio.timeout(100), open_channel(address) as channel:
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        asking = asyncio.create_task(ask(REQUEST, timeout=90))
        await asyncio.sleep(0.2)
        assert not asking.done()
        async with serving_grpc(ServerSettings(listen=address, drain_s=0.0), [served(servicer)]):
            assert not (await asking).runs
    assert servicer.calls == 3


async def test_an_error_of_the_peers_own_comes_out_at_once(tmp_path: Path) -> None:
    servicer = Breaking(ProviderUnavailable("not now"))  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    settings = ServerSettings(listen=f"unix:{tmp_path}/m.sock", drain_s=0.0)
    async with (
        asyncio.timeout(100),
        serving_grpc(settings, [served(servicer)]),
        open_channel(settings.listen) as channel,
    ):
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        with pytest.raises(ProviderUnavailable, match="not now"), rpc_errors():
            await ask(REQUEST, timeout=90)
    assert servicer.calls == 3


async def test_the_wait_ends_in_the_calls_own_time(tmp_path: Path) -> None:
    async with asyncio.timeout(100), open_channel(f"unix:{tmp_path}/m.sock") as channel:
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        assert await code_of(ask(REQUEST, timeout=0.3)) is grpc.StatusCode.DEADLINE_EXCEEDED
