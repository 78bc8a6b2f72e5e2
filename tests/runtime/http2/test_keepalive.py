"""A peer whose machine has gone is silent: both ends notice it, and neither mistakes a pause for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
from hyperframe.frame import PingFrame

from services.runtime.http2.limits import Limits
from tests.support.clients.network import Network, open_network
from tests.support.http2 import wire
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, code_of
from tests.support.http2.victim import victim
from tests.support.http2.wire import Peer, raw
from tests.support.logged import Logged

ALERT = Limits(keepalive_s=0.1, keepalive_timeout_s=0.3)


@asynccontextmanager
async def linked(port: int) -> AsyncGenerator[tuple[Network, str]]:
    """Run a link that can be cut without either end being told; yield it and the address that leads over it."""
    async with open_network(f"http://127.0.0.1:{port}") as link:
        yield link, link.url.removeprefix("http://")


async def test_a_server_notices_a_client_that_is_gone(logged: Logged) -> None:
    async with victim(ALERT) as server, linked(server.port) as (link, address):
        async with Channel(address, message_bytes_max=BYTES_MAX) as channel:
            stream = Caller(channel).stream(b"1")
            await stream.read()
            link.is_away = True
            await server.idle()
            stream.cancel()
        await server.serves()
    assert len(logged.named("peer is gone")) == 1


async def test_a_client_notices_a_server_that_is_gone(logged: Logged) -> None:
    async with (
        victim(Limits()) as server,
        linked(server.port) as (link, address),
        Channel(address, message_bytes_max=BYTES_MAX, limits=ALERT) as channel,
    ):
        stream = Caller(channel).stream(b"1")
        await stream.read()
        link.is_away = True
        assert await code_of(stream.read()) is grpc.StatusCode.UNAVAILABLE
    assert len(logged.named("peer is gone")) == 1


async def test_a_long_silence_does_not_end_a_connection(logged: Logged) -> None:
    async with (
        victim(ALERT) as server,
        Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX, limits=ALERT) as channel,
    ):
        stream = Caller(channel).stream(b"1")
        await stream.read()
        await asyncio.sleep((ALERT.keepalive_s + ALERT.keepalive_timeout_s) * 3)
        assert server.handled.running == 1
        assert await Caller(channel).unary(b"x") == b"x"
        stream.cancel()
    assert logged.named("peer is gone") == []


async def test_a_channel_without_a_call_does_not_ping_its_server() -> None:
    """Other servers treat that as abuse."""
    pings: list[PingFrame] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client_peer = Peer(reader, writer)
        await reader.readexactly(len(wire.PREFACE))
        await client_peer.send(wire.SETTINGS)
        while (frame := await client_peer.next()) is not None:
            if isinstance(frame, PingFrame):
                pings.append(frame)
                await client_peer.send(raw(wire.PING, 1, 0, frame.opaque_data))
        client_peer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with (
            asyncio.timeout(TEST_TIMEOUT_S),
            Channel(address, message_bytes_max=BYTES_MAX, limits=ALERT) as channel,
        ):
            await channel.channel_ready()
            await asyncio.sleep(ALERT.keepalive_s * 4)
            assert pings == []
            stream = Caller(channel).stream(b"")
            await asyncio.sleep(ALERT.keepalive_s * 4)
            assert pings
            stream.cancel()
    finally:
        server.close()
