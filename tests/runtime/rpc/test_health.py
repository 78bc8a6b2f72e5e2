"""Health of one service, and of the chain of those it needs. Servers without services stand in for the peers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.health import CHAIN, LIVE, check_peers
from services.runtime.rpc.server import serving_grpc
from tests.support.http2.ends import code_of
from tests.support.scripted_llm import NAME, TEST_TIMEOUT_S, serving_script
from tests.support.timing import within

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def status(channel: grpc.aio.Channel, service: str) -> int:
    check = health_pb2_grpc.HealthStub(channel).Check  # pyright: ignore[reportAttributeAccessIssue] - untyped stub
    return (await check(health_pb2.HealthCheckRequest(service=service))).status


@asynccontextmanager
async def peer(address: str = "127.0.0.1:0", **peers: grpc.aio.Channel) -> AsyncGenerator[grpc.aio.Channel]:
    settings = ServerSettings(listen=address, drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [], peers=peers) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        yield channel


async def test_each_service_and_the_server_itself_are_healthy() -> None:
    async with serving_script() as suite, open_channel(suite.running.addresses[0]) as channel:
        for service in ("", NAME, CHAIN):
            assert await status(channel, service) == SERVING
        assert await code_of(status(channel, "headrace.v1.Nobody")) is grpc.StatusCode.NOT_FOUND


async def test_the_chain_follows_a_peer_that_goes_and_comes_back(tmp_path: object) -> None:
    address = f"unix:{tmp_path}/end"
    async with open_channel(address) as end, peer(end=end) as middle, peer(middle=middle) as near:
        assert [await status(near, CHAIN), await status(near, "")] == [NOT_SERVING, SERVING]
        assert await check_peers({"near": near, "end": end}) == {"near": False, "end": False}
        for _ in range(2):
            async with peer(address):
                await reaches(near, SERVING)
                assert await check_peers({"near": near, "end": end}) == {"near": True, "end": True}
            await reaches(near, NOT_SERVING)


async def test_what_is_no_service_counts_for_the_chain_alone() -> None:
    usable = [True, False]
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [], is_usable=lambda: usable.pop(0)) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        assert [await status(channel, CHAIN), await status(channel, CHAIN)] == [SERVING, NOT_SERVING]
        assert await status(channel, "") == SERVING


async def test_a_service_without_its_first_files_is_live_and_not_ready() -> None:
    configured = [False]
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [], is_configured=lambda: configured[0]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        names = ("", CHAIN, LIVE)
        assert [await status(channel, name) for name in names] == [NOT_SERVING, NOT_SERVING, SERVING]
        configured[0] = True
        assert [await status(channel, name) for name in names] == [SERVING, SERVING, SERVING]


async def reaches(channel: grpc.aio.Channel, expected: int) -> None:
    """A channel looks for a lost peer again after a moment."""
    async with within(3):
        while await status(channel, CHAIN) != expected:
            await asyncio.sleep(0.02)
