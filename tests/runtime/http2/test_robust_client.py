"""Servers that break the rules: the call ends with a status, and the channel continues with the next one."""

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, HeadersFrame

from services.runtime.http2 import limits
from services.runtime.http2.limits import Limits
from tests.support.http2 import wire
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, code_of
from tests.support.http2.wire import Header, Peer, block, in_pieces, message, raw, reset, setting, window
from tests.support.logged import Logged

CODE = grpc.StatusCode

HEAD: list[Header] = [(":status", "200"), ("content-type", "application/grpc")]
OK: list[Header] = [("grpc-status", "0")]


def headers(fields: list[Header], *, end: bool = False, stream_id: int = 1) -> bytes:
    return raw(wire.HEADERS, wire.END_HEADERS | (wire.END_STREAM if end else 0), stream_id, block(fields))


def goaway(last_stream_id: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> bytes:
    return raw(wire.GOAWAY, 0, 0, struct.pack(">LL", last_stream_id, code))


def honest_response(stream_id: int = 1) -> bytes:
    return (
        headers(HEAD, stream_id=stream_id)
        + message(stream_id, b"honest", end=False)
        + headers(OK, end=True, stream_id=stream_id)
    )


@asynccontextmanager
async def rogue(answer: bytes, greeting: bytes = wire.SETTINGS, *, closes: bool = False) -> AsyncGenerator[Caller]:
    """Yield a caller of a server that gives this answer to its first request, and correct ones on later connections.
    With `closes` it closes the connection after the answer.
    """
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        first = connections == 1
        client_peer = Peer(reader, writer)
        try:
            await reader.readexactly(len(wire.PREFACE))
            await client_peer.send(greeting if first else wire.SETTINGS)
            async for stream_id in requests(client_peer):
                if not first or stream_id != 1:
                    await client_peer.send(honest_response(stream_id))
                    continue
                await client_peer.send(answer)
                if closes or not answer:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            client_peer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    limited = Limits(connect_s=0.5, preface_s=0.3)
    try:
        async with (
            asyncio.timeout(TEST_TIMEOUT_S),
            Channel(address, message_bytes_max=BYTES_MAX, limits=limited) as channel,
        ):
            yield Caller(channel)
    finally:
        server.close()


async def requests(client_peer: Peer) -> AsyncGenerator[int]:
    """Yield the ids of requests that are complete."""
    while (frame := await client_peer.next()) is not None:
        if isinstance(frame, DataFrame | HeadersFrame) and "END_STREAM" in frame.flags:
            yield frame.stream_id


WRONG = {
    "nothing": (b"", CODE.UNAVAILABLE),
    "HTTP/1.1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", CODE.UNAVAILABLE),
    "a web page": (headers([(":status", "404")], end=True), CODE.UNIMPLEMENTED),
    "a proxy's error": (
        headers([(":status", "503"), ("content-type", "text/html")]) + raw(wire.DATA, 1, 1, b"<html>"),
        CODE.UNAVAILABLE,
    ),
    "a web page with status 200": (
        headers([(":status", "200"), ("content-type", "text/html")]) + raw(wire.DATA, 1, 1, b"<html>"),
        CODE.UNKNOWN,
    ),
    "a status that is no number": (headers([(":status", "2oo")], end=True), CODE.UNKNOWN),
    "a status with too many digits": (headers([(":status", "2" * 5000)], end=True), CODE.UNKNOWN),
    "a grpc-status with too many digits": (headers([*HEAD, ("grpc-status", "1" * 5000)], end=True), CODE.UNKNOWN),
    "a grpc-status that is no number": (headers([*HEAD, ("grpc-status", "OK")], end=True), CODE.UNKNOWN),
    "a grpc-status of the future": (headers([*HEAD, ("grpc-status", "99")], end=True), CODE.UNKNOWN),
    "no grpc-status": (headers(HEAD, end=True), CODE.INTERNAL),
    "no answer": (headers([*HEAD, *OK], end=True), CODE.INTERNAL),
    "two answers": (headers(HEAD) + message(1, b"a", end=False) * 2 + headers(OK, end=True), CODE.INTERNAL),
    "data without headers": (message(1, b"x"), CODE.UNAVAILABLE),
    "a wrong length": (
        headers([*HEAD, ("content-length", "7")]) + message(1, b"honest", end=False) + headers(OK, end=True),
        CODE.INTERNAL,
    ),
    "a length that is not reached": (
        headers([*HEAD, ("content-length", "12")]) + message(1, b"honest", end=False) + headers(OK, end=True),
        CODE.INTERNAL,
    ),
    "a length and no message": (headers([*HEAD, *OK, ("content-length", "1")], end=True), CODE.INTERNAL),
    "the right length": (
        headers([*HEAD, ("content-length", "11")]) + message(1, b"honest", end=False) + headers(OK, end=True),
        CODE.OK,
    ),
    "half a message": (headers(HEAD) + raw(wire.DATA, 0, 1, b"\0\0\0\0\x05ab") + headers(OK, end=True), CODE.INTERNAL),
    "half a message, and why": (
        headers(HEAD) + raw(wire.DATA, 0, 1, b"\0\0\0\0\x05ab") + headers([("grpc-status", "4")], end=True),
        CODE.DEADLINE_EXCEEDED,
    ),
    "a compressed message": (
        headers(HEAD) + raw(wire.DATA, 0, 1, b"\1\0\0\0\2ab") + headers(OK, end=True),
        CODE.INTERNAL,
    ),
    "a message that is too large": (
        headers(HEAD) + raw(wire.DATA, 0, 1, b"\0\xff\xff\xff\xff"),
        CODE.RESOURCE_EXHAUSTED,
    ),
    "a message behind the end": (honest_response() + message(1, b"x"), CODE.OK),
    "headers of another stream": (headers(HEAD, stream_id=7), CODE.UNAVAILABLE),
    "a stream of its own": (raw(wire.PUSH_PROMISE, wire.END_HEADERS, 1, b"\0\0\0\2" + block(HEAD)), CODE.UNAVAILABLE),
    "more than the window allows": (
        headers(HEAD) + raw(wire.DATA, 0, 1, b"\0\0\1\x11\x11") + raw(wire.DATA, 0, 1, b"x" * 16000) * 5,
        CODE.INTERNAL,
    ),
    "a reset without a reason": (reset(1, ErrorCodes.NO_ERROR), CODE.INTERNAL),
    "a reset for an unknown reason": (reset(1, 0xFFFFFFFF), CODE.INTERNAL),
    "a reset to calm down": (reset(1, ErrorCodes.ENHANCE_YOUR_CALM), CODE.RESOURCE_EXHAUSTED),
    "a window that overflows": (window(1, 2**31 - 1), CODE.INTERNAL),
    "a flood of pings": (raw(wire.PING, 0, 0, b"12345678") * (limits.CONTROL_BURST * 4), CODE.UNAVAILABLE),
    "a flood of settings": (raw(wire.SETTINGS_KIND, 0, 0, b"") * (limits.CONTROL_BURST * 4), CODE.UNAVAILABLE),
    "a header list that is too large": (
        in_pieces(1, [*HEAD, *((f"key{n}", "v" * 100) for n in range(500))]),
        CODE.UNAVAILABLE,
    ),
    "a goaway on a stream": (raw(wire.GOAWAY, 0, 1, b"\0" * 8), CODE.UNAVAILABLE),
    "a frame that is too large": (raw(wire.DATA, 0, 1, b"", length=16 * 1024 + 1), CODE.UNAVAILABLE),
}


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_response_ends_the_call_and_the_next_one_succeeds(what: str, is_stream: bool) -> None:
    answer, code = WRONG[what]
    if is_stream and what in ("no answer", "two answers"):
        code = CODE.OK
    async with rogue(answer) as caller:
        call = read(caller.stream(b"x", timeout=50)) if is_stream else caller.unary(b"x", timeout=50)
        assert await code_of(call) is code
        assert await call_again(caller) == b"honest"


async def read(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def call_again(caller: Caller) -> bytes:
    return await caller.unary(b"x", timeout=5, wait_for_ready=True)


@pytest.mark.parametrize("answer", [goaway(0), goaway(2**31 - 1) + goaway(0)], ids=["told to go", "told to go twice"])
async def test_a_call_that_was_not_started_is_repeated_once(answer: bytes) -> None:
    async with rogue(answer) as caller:
        assert await caller.unary(b"x", timeout=50) == b"honest"


async def test_a_goaway_lets_earlier_calls_end() -> None:
    async with rogue(goaway(1) + honest_response()) as caller:
        assert await caller.unary(b"x", timeout=50) == b"honest"
        assert await caller.unary(b"x", timeout=50) == b"honest"


async def test_an_error_of_a_closed_connection_is_reported_in_the_details(logged: Logged) -> None:
    async with rogue(goaway(1, ErrorCodes.ENHANCE_YOUR_CALM), closes=True) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.unary(b"x", timeout=50)
        assert caught.value.code() is CODE.UNAVAILABLE
        assert "ENHANCE_YOUR_CALM" in str(caught.value.details())
    assert logged.errors == []


GREETINGS = {
    "nothing": b"",
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an acknowledgement": raw(wire.SETTINGS_KIND, wire.ACK, 0, b""),
    "a ping": raw(wire.PING, 0, 0, b"12345678"),
    "settings that are none": raw(wire.SETTINGS_KIND, 0, 0, b"12345"),
    "a push setting": setting(2, 1),
}


@pytest.mark.parametrize("what", GREETINGS)
async def test_a_server_without_a_greeting_fails_the_waiting_calls(what: str) -> None:
    async with rogue(b"", GREETINGS[what]) as caller:
        assert await code_of(caller.unary(b"x", timeout=50)) is CODE.UNAVAILABLE
        assert await call_again(caller) == b"honest"


async def test_a_server_that_accepts_no_streams_fails_calls_at_their_deadline() -> None:
    none = setting(3, 0)
    async with rogue(b"", none) as caller:
        assert await code_of(caller.unary(b"x", timeout=0.3)) is CODE.DEADLINE_EXCEEDED


async def test_a_response_to_a_cancelled_call_is_ignored() -> None:
    async with rogue(honest_response()) as caller:
        call = caller.unary(b"x")
        await call.wait_for_connection()
        call.cancel()
        assert await call_again(caller) == b"honest"
