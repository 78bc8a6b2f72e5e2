"""A reader that does not read stops its own stream, at a bounded size; other streams on the connection continue."""

import asyncio
from typing import Any

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame, SettingsFrame

from services.runtime.http2 import limits
from tests.support.http2.ends import Stack, between, connecting, handlers
from tests.support.http2.victim import victim
from tests.support.http2.wire import call, headers_of, message, opening, peer, window
from tests.support.timing import until_still

OURS: list[Stack] = ["ours", "local", "queued"]
PIECE = b"x" * 1000
SETTLED_S = 0.1
"""The time after which nothing more is sent to a reader that does not read."""

UNREAD_BYTES_MAX = limits.WINDOW_BYTES + 2 * limits.BACKLOG_BYTES
"""Bytes of a stream that nobody reads: what the window allows, and what waits at the sender."""

NEIGHBOUR = 2000
"""Messages of another stream; many windows."""


class Sender:
    """Sends as much as it can, and counts the messages."""

    def __init__(self) -> None:
        self.sent = 0

    async def stream(self, request: bytes, context: Any) -> None:
        count = int(request)
        while count:
            await context.write(PIECE)
            self.sent += request == b"-1"
            count -= 1


@pytest.mark.parametrize("stack", OURS)
async def test_messages_waiting_for_a_reader_that_does_not_read_are_bounded(stack: Stack) -> None:
    sender = Sender()
    async with connecting(stack, stack, handlers(stream=sender.stream)) as caller:
        call = caller.stream(b"-1")
        await call.read()
        assert await until_still(lambda: sender.sent, SETTLED_S) * len(PIECE) <= UNREAD_BYTES_MAX
        for _ in range(1000):
            assert await call.read() == PIECE
        assert sender.sent > 1000
        call.cancel()


@between
async def test_a_reader_that_does_not_read_stops_no_other_stream(client: Stack, server: Stack) -> None:
    sender = Sender()
    async with connecting(client, server, handlers(stream=sender.stream)) as caller:
        stuck = [caller.stream(b"-1") for _ in range(3)]
        for call in stuck:
            await call.read()
        await until_still(lambda: sender.sent, SETTLED_S)
        assert [message async for message in caller.stream(b"%d" % NEIGHBOUR)] == [PIECE] * NEIGHBOUR
        for call in stuck:
            for _ in range(500):
                assert await call.read() == PIECE
            call.cancel()


@between
async def test_a_handler_that_does_not_read_stops_only_its_sender(client: Stack, server: Stack) -> None:
    go_on = asyncio.Event()

    async def upload(requests: Any, context: Any) -> bytes:
        first = await anext(requests)
        if first == b"slow":
            await go_on.wait()
        return b"%d" % sum([len(request) async for request in requests])

    sent = 0

    async def pieces() -> Any:
        nonlocal sent
        yield b"slow"
        for _ in range(NEIGHBOUR):
            yield PIECE
            sent += 1

    async with connecting(client, server, handlers(upload=upload)) as caller:
        slow = caller.upload(pieces())
        await until_still(lambda: sent, SETTLED_S)
        if "grpcio" not in (client, server):
            assert sent * len(PIECE) <= UNREAD_BYTES_MAX
        assert await caller.upload(iter([b"fast"] + [PIECE] * NEIGHBOUR)) == b"%d" % (NEIGHBOUR * len(PIECE))
        go_on.set()
        assert await slow == b"%d" % (NEIGHBOUR * len(PIECE))


@pytest.mark.parametrize("stack", OURS)
@pytest.mark.parametrize("size", [limits.WINDOW_BYTES * 3])
async def test_a_message_larger_than_the_window_arrives_before_it_is_read(stack: Stack, size: int) -> None:
    async def stream(request: bytes, context: Any) -> Any:
        for _ in range(3):
            yield b"x" * size

    async with connecting(stack, stack, handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        await asyncio.sleep(SETTLED_S)
        assert [len(message) async for message in call] == [size] * 3


WINDOW = 0x4
"""SETTINGS_INITIAL_WINDOW_SIZE"""

SMALL = {WINDOW: 500}
BODY = b"x" * 2000


async def test_a_settings_change_is_acknowledged_before_more_is_sent() -> None:
    async with victim() as server, peer(server.port, settings=SMALL) as client:
        await client.send(call(1, "unary", BODY))
        await client.until(DataFrame)
        await client.pong()
        frame_count = len(client.seen)
        await client.send(SettingsFrame(0, settings={WINDOW: 5000}).serialize())
        await client.until(DataFrame)
        (acknowledgement, *_) = [frame for frame in client.seen[frame_count:] if not isinstance(frame, PingFrame)]
        assert isinstance(acknowledgement, SettingsFrame)
        assert "ACK" in acknowledgement.flags


async def test_a_window_update_for_a_stream_reset_in_the_same_read_is_no_error() -> None:
    async with victim() as server, peer(server.port, settings=SMALL) as client:
        await client.send(call(1, "unary", BODY))
        await client.until(DataFrame)
        await client.send(window(1, 10_000), RstStreamFrame(1, error_code=ErrorCodes.CANCEL).serialize())
        await client.send(call(3, "unary", b"next"))
        await client.until(DataFrame)
        await client.pong()
        assert 3 in client.answered()


async def test_data_for_a_stream_that_was_reset_is_ignored() -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("nothing")), message(1, BODY, end=False))
        await client.until(RstStreamFrame)
        await client.send(*[message(1, BODY, end=False)] * 100)
        assert [frame for frame in await client.pong() if isinstance(frame, RstStreamFrame)] == []
        await client.send(call(3, "unary", b"next"))
        await client.until(DataFrame)
