"""Clients that start something and do not continue: each has limited time, then it is disconnected."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from h2.errors import ErrorCodes
from h2.stream import H2Stream
from hpack import Decoder
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

from services.runtime.calls.metadata import STATUS_MESSAGE_BYTES_MAX
from services.runtime.calls.server_call import TURN_MESSAGES
from services.runtime.http2.limits import Limits
from tests.support.http2 import wire
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, Caller
from tests.support.http2.victim import OTHER, QUICK, service, victim
from tests.support.http2.wire import Peer, block, call, headers_of, message, opening, peer, raw, reset, window
from tests.support.logged import Logged
from tests.support.timing import within

WHOLE = block(headers_of("stream"))


async def send_slowly(client: Peer, pieces: list[bytes]) -> AsyncGenerator[bytes]:
    """Send a piece every 50 ms."""
    for piece in pieces:
        await client.send(piece)
        yield piece
        await asyncio.sleep(0.05)


NOT_HTTP2 = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100a5010000a10303") + b"\0" * 100,
    "one wrong byte": wire.PREFACE[:23] + b"x",
    "nonsense": b"\xff" * 1000,
}


@pytest.mark.parametrize("what", NOT_HTTP2)
async def test_a_client_of_another_protocol_is_refused_at_once(what: str) -> None:
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
async def test_a_slow_client_is_disconnected(what: str, logged: Logged) -> None:
    async with victim() as server, peer(server.port, greets=False) as attacker:
        async with within(QUICK.preface_s + 2), asyncio.TaskGroup() as group:
            reading = group.create_task(attacker.closed())
            async for _ in send_slowly(attacker, SLOW[what]):
                if reading.done():
                    break
        assert server.handled.begun == 0
        await server.serves()
    assert [line["error"] for line in logged.named("connection refused")] == ["too slow"]


@pytest.mark.parametrize("body", [b"", raw(wire.DATA, 0, 1, b"\0\0\0\0\x05ab")], ids=["nothing", "half a message"])
async def test_a_request_that_never_completes_ends_its_call(body: bytes) -> None:
    async with victim() as server, peer(server.port) as attacker:
        await attacker.send(opening(1, headers_of("unary")), body)
        await attacker.until_answered(1)
        assert server.handled.begun == 0
        await server.serves()


async def test_a_client_that_closes_its_side_and_reads_nothing_holds_no_handler() -> None:
    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 2**31 - 1}
    async with victim() as server, peer(server.port, settings=settings) as client:
        client.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        await client.send(window(0, 2**30), call(1, "stream", b"100000"))
        while server.handled.written < 1000:
            await asyncio.sleep(0.01)
        client.writer.write_eof()
        await server.idle()


@pytest.mark.parametrize("method", ["stream", "upload", "unary"])
async def test_a_client_that_closes_its_side_counts_as_gone(method: str) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(call(1, "stream", b"1") if method == "stream" else opening(1, headers_of(method)))
        await client.pong()
        client.writer.write_eof()
        assert await client.closed() is None
        await server.serves()
        assert server.handled.uploads == 0


WIDE = {SettingsFrame.INITIAL_WINDOW_SIZE: 2**31 - 1}


async def test_a_handler_that_never_waits_leaves_turns_to_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with victim(Limits()) as server, peer(server.port, settings=WIDE) as client:
        await client.send(window(0, 2**30))
        await client.pong()
        ticking = asyncio.create_task(others())
        await client.send(call(1, "stream", b"1000"))
        while server.handled.written < 1000:
            before, written = turns, server.handled.written
            await client.next()
            assert server.handled.written - written <= (turns - before + 1) * TURN_MESSAGES
        ticking.cancel()


def count_bytes(client: Peer) -> dict[int, int]:
    """Return the bytes that have arrived on each stream."""
    byte_counts: dict[int, int] = {1: 0, 3: 0, 5: 0}
    for frame in client.seen:
        if isinstance(frame, DataFrame):
            byte_counts[frame.stream_id] += frame.body_len
    return byte_counts


async def test_a_handler_that_pushes_is_told_to_stop_when_the_client_does_not_read() -> None:
    pushed: asyncio.Queue[int] = asyncio.Queue(1)

    async def push(request: bytes, context: Any) -> None:
        count = 0
        while context.send(b"x" * 1000) and count < 50_000:
            count += 1
        pushed.put_nowait(count)
        await context.wait_until_drained()

    async with victim() as server, peer(server.port, settings=WIDE) as client:
        server.server.add_generic_rpc_handlers([service(push=grpc.unary_stream_rpc_method_handler(push))])
        client.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        await client.send(window(0, 2**30), opening(1, headers_of("", path=f"/{OTHER}/push")), message(1, b""))
        assert await pushed.get() < 20_000, "more than sockets hold"


async def test_streams_share_the_connections_window_fairly() -> None:
    async with victim(Limits()) as server, peer(server.port, settings=WIDE) as client:
        await client.send(*(call(stream_id, "stream", b"1000") for stream_id in (1, 3, 5)))
        while sum(count_bytes(client).values()) < 65_535:
            assert await client.next() is not None
        first = count_bytes(client)
        for _ in range(30):
            await client.send(window(0, 1000))
            await client.pong()
        counts = count_bytes(client)
        assert sum(counts.values()) == 65_535 + 30_000
        assert all(counts[stream_id] - first[stream_id] >= 9_000 for stream_id in counts)


async def test_a_large_header_table_of_the_client_stays_empty() -> None:
    settings = {SettingsFrame.HEADER_TABLE_SIZE: 2**32 - 1}
    decoder = Decoder()
    decoder.max_allowed_table_size = 2**32 - 1
    async with victim() as server, peer(server.port, settings=settings) as client:
        for number in range(200):
            stream_id = 2 * number + 1
            await client.send(opening(stream_id, headers_of("", path=f"/unknown/{number}" + "x" * 500), end=True))
            frame = await client.until(HeadersFrame)
            assert isinstance(frame, HeadersFrame)
            assert dict(decoder.decode(frame.data, raw=True))[b"grpc-status"] == b"12"
            assert decoder.header_table_size == 0


@pytest.mark.parametrize("letter", ["x", "%", "é", "漢", "😀"])
async def test_a_long_status_message_is_cut_and_harms_no_other_call(letter: str) -> None:
    async def fail(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, letter * 100_000)

    async with victim() as server, Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
        server.server.add_generic_rpc_handlers([service(fail=grpc.unary_unary_rpc_method_handler(fail))])
        other_call = Caller(channel).stream(b"1")
        await other_call.read()
        call: Any = channel.unary_unary(f"/{OTHER}/fail")(b"")
        assert await call.code() is grpc.StatusCode.ABORTED
        details = await call.details()
        assert STATUS_MESSAGE_BYTES_MAX / 13 < len(details) <= STATUS_MESSAGE_BYTES_MAX
        assert details.strip("\N{REPLACEMENT CHARACTER}").strip(letter) == ""
        assert not other_call.done()
        other_call.cancel()


def count_streams() -> int:
    gc.collect()
    return sum(type(item) is H2Stream for item in gc.get_objects())


async def test_ended_streams_are_released() -> None:
    async with victim() as server, Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
        caller = Caller(channel)
        before = count_streams()
        for _ in range(50):
            await caller.unary(b"x")
            stream = caller.stream(b"1")
            await stream.read()
            stream.cancel()
        await server.idle()
        assert count_streams() - before <= 2


async def test_streams_reset_by_the_client_are_released() -> None:
    async with victim() as server, peer(server.port) as client:
        before = count_streams()
        await client.send(*(opening(2 * n + 1, headers_of("unary")) for n in range(100)))
        await client.send(*(reset(2 * n + 1, ErrorCodes.CANCEL) for n in range(100)))
        await client.pong()
        await server.idle()
        assert count_streams() - before <= 2
