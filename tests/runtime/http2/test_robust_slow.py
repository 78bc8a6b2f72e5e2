"""Clients that begin something and do not go on: each has so long, then it is cut off."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hyperframe.frame import SettingsFrame

from services.runtime.http2.limits import Limits
from tests.support.http2 import wire
from tests.support.http2.victim import QUICK, victim
from tests.support.http2.wire import Peer, block, call, headers_of, opening, peer, raw, window
from tests.support.logged import Logged
from tests.support.timing import within

WHOLE = block(headers_of("stream"))


async def slowly(one: Peer, pieces: list[bytes]) -> AsyncGenerator[bytes]:
    """Send a piece every 50 ms."""
    for piece in pieces:
        await one.send(piece)
        yield piece
        await asyncio.sleep(0.05)


NOT_HTTP2 = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100a5010000a10303") + b"\0" * 100,
    "one wrong byte": wire.PREFACE[:23] + b"x",
    "nonsense": b"\xff" * 1000,
}


@pytest.mark.parametrize("what", NOT_HTTP2)
async def test_what_is_not_http2_is_refused_at_once(what: str) -> None:
    async with victim(Limits()) as server, peer(server.port, greets=False) as attacker, asyncio.timeout(50):
        await attacker.send(NOT_HTTP2[what])
        await attacker.reader.read()
        await server.serves()


async def test_a_preface_without_settings_is_refused() -> None:
    async with victim() as server, peer(server.port, greets=False) as attacker:
        await attacker.send(wire.PREFACE, call(1, "unary"))
        assert await attacker.closed() is not None
        assert server.handled.begun == 0
        await server.serves()


SLOW = {
    "nothing": [],
    "half a preface": [wire.PREFACE[:10]],
    "a byte at a time": [bytes([byte]) for byte in wire.PREFACE],
    "no settings": [wire.PREFACE],
    "half of the settings": [wire.PREFACE, wire.SETTINGS[:5]],
    "a header block without an end": [wire.PREFACE + wire.SETTINGS, raw(wire.HEADERS, 0, 1, WHOLE)],
    "a header block in drops": [
        wire.PREFACE + wire.SETTINGS + raw(wire.HEADERS, 0, 1, WHOLE),
        *(raw(wire.CONTINUATION, 0, 1, b"") for _ in range(20)),
    ],
}


@pytest.mark.parametrize("what", SLOW)
async def test_a_client_that_takes_its_time_is_cut_off(what: str, logged: Logged) -> None:
    async with victim() as server, peer(server.port, greets=False) as attacker:
        async with within(QUICK.preface_s + 2), asyncio.TaskGroup() as group:
            reading = group.create_task(attacker.closed())
            async for _ in slowly(attacker, SLOW[what]):
                if reading.done():
                    break
        assert server.handled.begun == 0
        await server.serves()
    assert [line["error"] for line in logged.named("connection refused")] == ["too slow"]


@pytest.mark.parametrize("rest", [b"", raw(wire.DATA, 0, 1, b"\0\0\0\0\x05ab")], ids=["nothing", "half a message"])
async def test_a_request_that_never_comes_ends_its_call(rest: bytes) -> None:
    async with victim() as server, peer(server.port) as attacker:
        await attacker.send(opening(1, headers_of("unary")), rest)
        await attacker.until_answered(1)
        assert server.handled.begun == 0
        await server.serves()


async def test_a_client_that_closes_its_side_and_takes_nothing_holds_no_handler() -> None:
    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 2**31 - 1}
    async with victim() as server, peer(server.port, settings=settings) as client:
        client.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        await client.send(window(0, 2**30), call(1, "stream", b"100000"))
        while server.handled.written < 1000:
            await asyncio.sleep(0.01)
        client.writer.write_eof()
        await server.idle()


@pytest.mark.parametrize("method", ["stream", "upload", "unary"])
async def test_a_client_that_closes_its_side_is_gone(method: str) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(call(1, "stream", b"1") if method == "stream" else opening(1, headers_of(method)))
        await client.pong()
        client.writer.write_eof()
        assert await client.closed() is None
        await server.serves()
        assert server.handled.uploads == 0
