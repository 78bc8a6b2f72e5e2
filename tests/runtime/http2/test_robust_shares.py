"""What one client's calls may have of the loop, of the connection and of memory, so that others get theirs."""

import asyncio
import gc
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
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, Caller
from tests.support.http2.victim import OTHER, service, victim
from tests.support.http2.wire import Peer, call, headers_of, message, opening, peer, reset, window

WIDE = {SettingsFrame.INITIAL_WINDOW_SIZE: 2**31 - 1}


async def test_a_handler_that_never_waits_lets_others_have_their_turns() -> None:
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


def given_to(client: Peer) -> dict[int, int]:
    """The bytes that have come on each stream."""
    given: dict[int, int] = {1: 0, 3: 0, 5: 0}
    for frame in client.seen:
        if isinstance(frame, DataFrame):
            given[frame.stream_id] += frame.body_len
    return given


async def test_one_who_pushes_is_told_to_stop_when_nobody_reads() -> None:
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


async def test_streams_that_wait_for_the_connections_window_have_it_in_turn() -> None:
    async with victim(Limits()) as server, peer(server.port, settings=WIDE) as client:
        await client.send(*(call(stream_id, "stream", b"1000") for stream_id in (1, 3, 5)))
        while sum(given_to(client).values()) < 65_535:
            assert await client.next() is not None
        first = given_to(client)
        for _ in range(30):
            await client.send(window(0, 1000))
            await client.pong()
        given = given_to(client)
        assert sum(given.values()) == 65_535 + 30_000
        assert all(given[stream_id] - first[stream_id] >= 9_000 for stream_id in given)


async def test_a_large_table_of_the_client_stays_empty() -> None:
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
async def test_a_long_status_message_is_cut_off_and_harms_nobody(letter: str) -> None:
    async def fail(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, letter * 100_000)

    async with victim() as server, Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
        server.server.add_generic_rpc_handlers([service(fail=grpc.unary_unary_rpc_method_handler(fail))])
        beside = Caller(channel).stream(b"1")
        await beside.read()
        call: Any = channel.unary_unary(f"/{OTHER}/fail")(b"")
        assert await call.code() is grpc.StatusCode.ABORTED
        details = await call.details()
        assert STATUS_MESSAGE_BYTES_MAX / 13 < len(details) <= STATUS_MESSAGE_BYTES_MAX
        assert details.strip("\N{REPLACEMENT CHARACTER}").strip(letter) == ""
        assert not beside.done()
        beside.cancel()


def streams_kept() -> int:
    gc.collect()
    return sum(type(item) is H2Stream for item in gc.get_objects())


async def test_streams_that_have_ended_are_kept_nowhere() -> None:
    async with victim() as server, Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
        caller = Caller(channel)
        before = streams_kept()
        for _ in range(50):
            await caller.unary(b"x")
            answers = caller.stream(b"1")
            await answers.read()
            answers.cancel()
        await server.idle()
        assert streams_kept() - before <= 2


async def test_streams_that_the_client_resets_are_kept_nowhere() -> None:
    async with victim() as server, peer(server.port) as client:
        before = streams_kept()
        await client.send(*(opening(2 * n + 1, headers_of("unary")) for n in range(100)))
        await client.send(*(reset(2 * n + 1, ErrorCodes.CANCEL) for n in range(100)))
        await client.pong()
        await server.idle()
        assert streams_kept() - before <= 2
