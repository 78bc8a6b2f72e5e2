"""Health of one service, and of the chain of those it needs. Servers without services act as the peers."""

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


async def check_status(channel: grpc.aio.Channel, service: str) -> int:
    check = health_pb2_grpc.HealthStub(channel).Check  # pyright: ignore[reportAttributeAccessIssue] - untyped stub
    return (await check(health_pb2.HealthCheckRequest(service=service))).status


@asynccontextmanager
async def serving_peer(address: str = "127.0.0.1:0", **peers: grpc.aio.Channel) -> AsyncGenerator[grpc.aio.Channel]:
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
            assert await check_status(channel, service) == SERVING
        assert await code_of(check_status(channel, "headrace.v1.Nobody")) is grpc.StatusCode.NOT_FOUND


async def test_the_chain_follows_a_peer_that_stops_and_returns(tmp_path: object) -> None:
    address = f"unix:{tmp_path}/end"
    async with open_channel(address) as end, serving_peer(end=end) as middle, serving_peer(middle=middle) as near:
        assert [await check_status(near, CHAIN), await check_status(near, "")] == [NOT_SERVING, SERVING]
        assert await check_peers({"near": near, "end": end}) == {"near": False, "end": False}
        for _ in range(2):
            async with serving_peer(address):
                await wait_for_status(near, SERVING)
                assert await check_peers({"near": near, "end": end}) == {"near": True, "end": True}
            await wait_for_status(near, NOT_SERVING)


async def test_an_unusable_component_affects_only_the_chain() -> None:
    usable = [True, False]
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [], is_usable=lambda: usable.pop(0)) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        assert [await check_status(channel, CHAIN), await check_status(channel, CHAIN)] == [SERVING, NOT_SERVING]
        assert await check_status(channel, "") == SERVING


async def test_an_unconfigured_service_is_live_but_not_ready() -> None:
    configured = [False]
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [], is_configured=lambda: configured[0]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        names = ("", CHAIN, LIVE)
        assert [await check_status(channel, name) for name in names] == [NOT_SERVING, NOT_SERVING, SERVING]
        configured[0] = True
        assert [await check_status(channel, name) for name in names] == [SERVING, SERVING, SERVING]


async def wait_for_status(channel: grpc.aio.Channel, expected: int) -> None:
    """Wait for a status of the chain: a channel that lost its server looks for it again after a moment."""
    async with within(3):
        while await check_status(channel, CHAIN) != expected:
            await asyncio.sleep(0.02)
