"""A call waits for an unavailable peer, or is repeated; a peer that stays unavailable or silent is named in the
error."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.errors import ProviderUnavailable
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2, memory_pb2_grpc
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.peer_calls import repeat_until_answered, translating_peer_errors
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.http2.ends import code_of

REQUEST = memory_pb2.ListUnfinishedRunsRequest()


class Breaking(memory_pb2_grpc.MemoryServiceServicer):
    """Aborts two calls as if the connection had broken; then it answers, or fails."""

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


def make_memory_service(servicer: Any) -> GrpcService:
    return GrpcService("headrace.v1.MemoryService", servicer, memory_pb2_grpc.add_MemoryServiceServicer_to_server)


async def test_a_call_waits_for_a_peer_that_returns(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/m.sock"
    servicer = Breaking()  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    async with asyncio.timeout(100), open_channel(address) as channel:
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        asking = asyncio.create_task(ask(REQUEST, timeout=90))
        await asyncio.sleep(0.2)
        assert not asking.done()
        async with serving_grpc(ServerSettings(listen=address, drain_s=0.0), [make_memory_service(servicer)]):
            assert not (await asking).runs
    assert servicer.calls == 3


async def test_an_error_of_the_peer_itself_is_raised_at_once(tmp_path: Path) -> None:
    servicer = Breaking(ProviderUnavailable("not now"))  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    settings = ServerSettings(listen=f"unix:{tmp_path}/m.sock", drain_s=0.0)
    async with (
        asyncio.timeout(100),
        serving_grpc(settings, [make_memory_service(servicer)]),
        open_channel(settings.listen) as channel,
    ):
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        with pytest.raises(ProviderUnavailable, match="not now"), rpc_errors():
            await ask(REQUEST, timeout=90)
    assert servicer.calls == 3


async def test_the_wait_ends_at_the_calls_deadline(tmp_path: Path) -> None:
    async with asyncio.timeout(100), open_channel(f"unix:{tmp_path}/m.sock") as channel:
        ask = repeat_until_answered(memory_pb2_grpc.MemoryServiceStub(channel).ListUnfinishedRuns)
        assert await code_of(ask(REQUEST, timeout=0.3)) is grpc.StatusCode.DEADLINE_EXCEEDED


STATE_REQUEST = memory_pb2.GetStateRequest(chat_id="5f0c0000-0000-4000-8000-000000000001")


@pytest.mark.usefixtures("h2")
async def test_an_unavailable_service_is_named(tmp_path: Path) -> None:
    async with asyncio.timeout(100), open_channel(f"unix:{tmp_path}/nobody.sock") as channel:
        with pytest.raises(ProviderUnavailable, match=r"^MemoryService cannot be reached; try again$"), rpc_errors():
            await MemoryServiceStub(channel).GetState(STATE_REQUEST)


@pytest.mark.usefixtures("h2")
async def test_a_service_that_does_not_answer_in_time_is_named() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # SETTINGS, and never anything more
        try:
            await reader.read(-1)
        finally:
            writer.close()  # of a caller that is still there at the end of the test, too

    async with asyncio.timeout(100), await asyncio.start_server(silent, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with open_channel(f"127.0.0.1:{port}") as channel:
            message = r"^MemoryService did not answer in time; try again$"
            with pytest.raises(ProviderUnavailable, match=message), translating_peer_errors():
                await MemoryServiceStub(channel).GetState(STATE_REQUEST, timeout=0.2)
