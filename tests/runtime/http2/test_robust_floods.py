"""Clients that do too much of what is allowed. The limits are in limits.py."""

import asyncio
import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder
from hyperframe.frame import HeadersFrame

from services.runtime.http2 import limits
from services.runtime.http2.limits import Limits
from tests.support.http2 import wire
from tests.support.http2.ends import BYTES_MAX
from tests.support.http2.victim import victim
from tests.support.http2.wire import Peer, block, call, headers_of, in_pieces, opening, peer, raw, reset, window
from tests.support.logged import Logged

CALM, PROTOCOL = ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.PROTOCOL_ERROR
CANCEL = ErrorCodes.CANCEL
UPLOAD = opening(1, headers_of("upload"))
TIMES = limits.CONTROL_BURST + 10
"""More than the burst allows; the settings of every client count too."""

RESETS = 3 * limits.RESET_BURST
"""Some are answered before the frame arrives for which they must be reset: those between whose frames a turn of the
server ends. A slow machine has many turns.
"""

FLOODS = {
    "pings": raw(wire.PING, 0, 0, b"12345678") * TIMES,
    "settings": raw(wire.SETTINGS_KIND, 0, 0, b"") * TIMES,
    "priorities": raw(wire.PRIORITY, 0, 1, b"\0\0\0\0\0") * TIMES,
    "empty data": UPLOAD + raw(wire.DATA, 0, 1, b"") * TIMES,
    "kinds of settings": raw(wire.SETTINGS_KIND, 0, 0, b"".join(struct.pack(">HL", n, 0) for n in range(100, 2000))),
    "resets": b"".join(opening(2 * n + 1, headers_of("unary")) + reset(2 * n + 1, CANCEL) for n in range(RESETS)),
    "streams that the server must reset": b"".join(
        opening(2 * n + 1, headers_of("unary"), end=n % 2 == 0)
        + (raw(wire.DATA, 0, 2 * n + 1, b"x") if n % 2 == 0 else window(2 * n + 1, 2**31 - 1))
        for n in range(RESETS)
    ),
    "a large header list": in_pieces(1, headers_of("unary", *((f"key{n}", "v" * 100) for n in range(500)))),
    "a header list that grows when it is unpacked": raw(
        wire.HEADERS,
        wire.END_HEADERS,
        1,
        Encoder().encode(headers_of("unary")) + b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 2000,
    ),
}


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_ends_only_its_connection(what: str, logged: Logged) -> None:
    async with victim() as server, peer(server.port) as attacker:
        async with asyncio.TaskGroup() as group:
            group.create_task(attacker.send(FLOODS[what]))
            ended = group.create_task(attacker.closed())
        assert ended.result() is CALM
        await server.serves()
    assert len(logged.named("connection refused")) == 1


async def test_continuations_without_an_end_are_refused() -> None:
    async with victim() as server, peer(server.port) as attacker:
        await attacker.send(
            raw(wire.HEADERS, 0, 1, block(headers_of("unary"))), raw(wire.CONTINUATION, 0, 1, b"") * 1000
        )
        assert await attacker.closed() is PROTOCOL
        await server.serves()


async def test_the_pings_of_an_honest_peer_are_answered() -> None:
    async with victim() as server, peer(server.port) as client:
        for _ in range(limits.CONTROL_BURST // 2):
            await client.pong()
        await server.serves()


async def test_calls_cancelled_after_their_response_began_are_no_flood() -> None:
    async with victim() as server, peer(server.port) as client:
        for number in range(limits.RESET_BURST + 100):
            stream_id = 2 * number + 1
            await client.send(call(stream_id, "stream", b"1"))
            while (frame := await client.next()) is None or frame.stream_id != stream_id:
                assert frame is not None
            await client.send(reset(stream_id, CANCEL))
        await server.serves()


async def test_calls_opened_and_reset_in_one_read_do_not_disturb_the_next() -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(
            opening(1, headers_of("unary")),
            reset(1, CANCEL),
            opening(3, headers_of("unary"), end=True),
            opening(5, headers_of("nobody", path="/x"), end=True),
            reset(5, CANCEL),
            opening(7, [*headers_of("unary")[:-1], ("content-type", "text/html")], end=True),
            reset(7, CANCEL),
            call(9, "unary"),
        )
        await client.until_answered(9)
        await server.serves()


async def test_a_stream_over_the_limit_is_refused_and_the_others_continue() -> None:
    async with victim(Limits(streams_max=5)) as server, peer(server.port) as client:
        await client.send(*(call(2 * n + 1, "stream", b"1") for n in range(7)))
        await client.pong()
        assert client.resets() == {11: ErrorCodes.REFUSED_STREAM, 13: ErrorCodes.REFUSED_STREAM}
        assert server.handled.running == 5
        await client.send(reset(1, CANCEL), call(15, "unary"))
        await client.until_answered(15)


async def test_endless_streams_over_the_limit_are_a_flood() -> None:
    async with victim(Limits(streams_max=1, control_per_s=0)) as server, peer(server.port) as attacker:
        async with asyncio.TaskGroup() as group:
            group.create_task(attacker.send(*(opening(2 * n + 1, headers_of("unary")) for n in range(TIMES))))
            ended = group.create_task(attacker.closed())
        assert ended.result() is CALM
        await server.serves()


async def test_handlers_that_do_not_end_are_limited_even_if_their_streams_are_reset() -> None:
    # In one read and one turn, so that no handler gets a turn to end.
    one_turn = Limits(streams_max=10, handlers_max=20, turn_s=60.0)
    async with victim(one_turn) as server, peer(server.port) as attacker:
        pairs = (opening(2 * n + 1, headers_of("unary")) + reset(2 * n + 1, CANCEL) for n in range(30))
        await attacker.send(*pairs)
        assert await attacker.closed() is CALM
        await server.serves()


async def test_a_connection_over_the_limit_is_closed_at_once() -> None:
    async with victim(Limits(connections_max=2)) as server, peer(server.port) as first, peer(server.port) as second:
        await first.pong()
        await second.pong()
        async with peer(server.port) as third:
            assert await third.closed() is None
        await first.pong()
        first.close()
        async with asyncio.timeout(50):
            while True:
                async with peer(server.port) as another:
                    await another.send(call(1, "unary"))
                    if await another.next() is not None:
                        break


def traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


HUGE = {4: 2**31 - 1}
"""SETTINGS_INITIAL_WINDOW_SIZE"""


@pytest.mark.usefixtures("_traced")
@pytest.mark.parametrize("window_bytes", [0, 2**31 - 1], ids=["no window", "a window for all, and nobody reads"])
async def test_a_client_that_does_not_read_responses_uses_little_memory(window_bytes: int) -> None:
    async with victim(Limits()) as server, peer(server.port, settings={4: window_bytes}) as attacker:
        attacker.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        before = traced_bytes()
        window_update = window(0, 2**30) if window_bytes else b""
        await attacker.send(window_update, *(call(2 * n + 1, "stream", b"100000") for n in range(10)))
        await server.stuck()
        assert server.handled.running == 10
        assert traced_bytes() - before < 10 * limits.BACKLOG_BYTES + limits.OUT_PIECES_MAX * 2 * 1024 + 1_000_000
        await server.serves_others()


async def test_a_deadline_ends_a_call_whose_response_is_not_read() -> None:
    async with victim() as server, peer(server.port, settings={4: 0}) as client:
        await client.send(
            opening(1, headers_of("stream", ("grpc-timeout", "200m"))),
            call(1, "stream", b"1000")[len(opening(1, headers_of("stream"))) :],
        )
        while 1 not in client.resets():
            assert await client.next() is not None
        await server.serves()


async def test_a_peer_that_pings_and_never_reads_is_disconnected() -> None:
    async with victim() as server, peer(server.port, settings=HUGE) as attacker:
        await attacker.send(window(0, 2**30), call(1, "stream", b"100000"))
        attacker.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        async with asyncio.timeout(50):
            while server.handled.begun == 0 or server.handled.running:
                await attacker.send(raw(wire.PING, 0, 0, b"12345678") * 10)
                await asyncio.sleep(0.01)
        await server.serves()


async def test_a_peer_that_requests_and_never_reads_is_disconnected(logged: Logged) -> None:
    async with victim() as server, peer(server.port, settings=HUGE) as attacker:
        attacker.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        await attacker.send(window(0, 2**30), call(1, "stream", b"100000"))
        await server.stuck()
        for number in range(2000):
            if not server.handled.running:
                break
            # Each is answered, in as many bytes, that there is no such method.
            await attacker.send(opening(2 * number + 3, headers_of("", path="/" + "x" * 3000), end=True))
        await server.serves()
    assert [line["error"] for line in logged.named("connection refused")] == ["it reads nothing and asks for answers"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\1\0\0\0\2ab", b"12"),
        (b"\0\0\0\0\5ab", b"13"),
        (b"", b"13"),
        (b"\0" + struct.pack(">L", BYTES_MAX + 1) + b"ab", b"8"),
        (b"\0" + struct.pack(">L", 2**32 - 1), b"8"),
    ],
    ids=["compressed", "cut", "none", "too large", "as large as can be said"],
)
async def test_a_malformed_message_ends_its_call(body: bytes, status: bytes) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("unary")), raw(wire.DATA, 1, 1, body), call(3, "unary"))
        assert await status_of(client, 1) == status
        await client.until_answered(3)
        assert server.handled.begun == 1
        await server.serves()


async def status_of(client: Peer, stream_id: int) -> bytes:

    decoder = Decoder()
    while (frame := await client.next()) is not None:
        if isinstance(frame, HeadersFrame):
            fields = dict(decoder.decode(frame.data, raw=True))
            if frame.stream_id == stream_id and b"grpc-status" in fields:
                return fields[b"grpc-status"]
    raise AssertionError("closed without a status")


@pytest.mark.parametrize("timeout", ["", "5", "S", "-1S", "1s", "123456789S", "1.5S", "9" * 5000 + "S"])
async def test_an_invalid_timeout_is_refused(timeout: str) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("unary", ("grpc-timeout", timeout)), end=True))
        assert await status_of(client, 1) == b"13"
        assert server.handled.begun == 0
        await server.serves()


@pytest.mark.parametrize("kind", ["text/html", "application/grpc-web", "application/grpcx", "application/json"])
async def test_a_request_of_another_content_type_is_refused(kind: str) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, [*headers_of("unary")[:-1], ("content-type", kind)]))
        frame = await client.next()
        while frame is not None and not frame.stream_id:
            frame = await client.next()
        assert frame is not None
        assert dict(Decoder().decode(frame.data, raw=True))[b":status"] == b"415"  # pyright: ignore
        await client.pong()
        assert client.resets() == {1: ErrorCodes.NO_ERROR}
