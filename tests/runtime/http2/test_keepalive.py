"""A peer whose machine is gone says nothing, not even that: it is noticed at both ends, and at neither in a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
from hyperframe.frame import PingFrame

from services.runtime.http2.client.channel import Channel
from services.runtime.http2.limits import Limits
from tests.support.http2 import wire
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, code_of
from tests.support.http2.victim import victim
from tests.support.http2.wire import Peer, raw
from tests.support.logged import Logged

ALERT = Limits(keepalive_s=0.1, keepalive_timeout_s=0.3)


class Link:
    """Forwards between a client and a server until it is cut, which neither of them is told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_cut = False
        self.tasks: set[asyncio.Task[None]] = set()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        ways = (self.forward(reader, there_writer), self.forward(there_reader, writer))
        try:
            await asyncio.gather(*ways)
        finally:
            writer.transport.abort()
            there_writer.transport.abort()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.is_cut:
                continue
            writer.write(data)
        writer.close()


@asynccontextmanager
async def linked(port: int) -> AsyncGenerator[tuple[Link, str]]:
    link = Link(port)
    server = await asyncio.start_server(link.join, "127.0.0.1", 0)
    try:
        yield link, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_server_notices_a_client_that_is_gone(logged: Logged) -> None:
    async with victim(ALERT) as server, linked(server.port) as (link, address):
        async with Channel(address, message_bytes_max=BYTES_MAX) as channel:
            answers = Caller(channel).stream(b"1")
            await answers.read()
            link.is_cut = True
            await server.idle()
            answers.cancel()
        await server.serves()
    assert len(logged.named("peer is gone")) == 1


async def test_a_client_notices_a_server_that_is_gone(logged: Logged) -> None:
    async with (
        victim(Limits()) as server,
        linked(server.port) as (link, address),
        Channel(address, message_bytes_max=BYTES_MAX, limits=ALERT) as channel,
    ):
        answers = Caller(channel).stream(b"1")
        await answers.read()
        link.is_cut = True
        assert await code_of(answers.read()) is grpc.StatusCode.UNAVAILABLE
    assert len(logged.named("peer is gone")) == 1


async def test_a_long_silence_is_no_reason_to_part(logged: Logged) -> None:
    async with (
        victim(ALERT) as server,
        Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX, limits=ALERT) as channel,
    ):
        answers = Caller(channel).stream(b"1")
        await answers.read()
        await asyncio.sleep((ALERT.keepalive_s + ALERT.keepalive_timeout_s) * 3)
        assert server.handled.running == 1
        assert await Caller(channel).unary(b"x") == b"x"
        answers.cancel()
    assert logged.named("peer is gone") == []


async def test_a_channel_does_not_ping_a_server_without_a_call() -> None:
    """Servers of others count that as abuse."""
    pings: list[PingFrame] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = Peer(reader, writer)
        await reader.readexactly(len(wire.PREFACE))
        await one.send(wire.SETTINGS)
        while (frame := await one.next()) is not None:
            if isinstance(frame, PingFrame):
                pings.append(frame)
                await one.send(raw(wire.PING, 1, 0, frame.opaque_data))
        one.close()

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
            answers = Caller(channel).stream(b"")
            await asyncio.sleep(ALERT.keepalive_s * 4)
            assert pings
            answers.cancel()
    finally:
        server.close()
