"""Frames that no honest client sends: each ends its connection, or its stream, with the code of RFC 9113."""

import struct

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import SettingsFrame

from tests.support.http2 import wire
from tests.support.http2.victim import victim
from tests.support.http2.wire import block, call, headers_of, message, opening, peer, raw, setting, window

PROTOCOL, SIZE, FLOW = ErrorCodes.PROTOCOL_ERROR, ErrorCodes.FRAME_SIZE_ERROR, ErrorCodes.FLOW_CONTROL_ERROR
CLOSED, COMPRESSION = ErrorCodes.STREAM_CLOSED, ErrorCodes.COMPRESSION_ERROR

WHOLE = block(headers_of("stream"))
OPEN = opening(1, headers_of("stream"))
ASKED = call(1, "stream", b"0")
UPLOAD_OF_11 = opening(1, headers_of("upload", ("content-length", "11")))
PRIORITY_OF_1 = struct.pack(">LB", 1, 15)


FATAL: dict[str, tuple[bytes, ErrorCodes]] = {
    "settings of five bytes": (raw(wire.SETTINGS_KIND, 0, 0, b"12345"), SIZE),
    "settings on a stream": (raw(wire.SETTINGS_KIND, 0, 1, b""), PROTOCOL),
    "settings acknowledged with a payload": (raw(wire.SETTINGS_KIND, wire.ACK, 0, b"123456"), PROTOCOL),
    "a window setting that is too large": (setting(SettingsFrame.INITIAL_WINDOW_SIZE, 2**31), FLOW),
    "a frame size setting that is too small": (setting(SettingsFrame.MAX_FRAME_SIZE, 100), PROTOCOL),
    "a push setting that is no boolean": (setting(SettingsFrame.ENABLE_PUSH, 2), PROTOCOL),
    "a ping of seven bytes": (raw(wire.PING, 0, 0, b"1234567"), SIZE),
    "a ping on a stream": (raw(wire.PING, 0, 1, b"12345678"), PROTOCOL),
    "a goaway on a stream": (raw(wire.GOAWAY, 0, 1, b"\0" * 8), PROTOCOL),
    "a goaway of four bytes": (raw(wire.GOAWAY, 0, 0, b"\0" * 4), SIZE),
    "a window update of three bytes": (raw(wire.WINDOW_UPDATE, 0, 0, b"123"), SIZE),
    "a window update of nothing": (raw(wire.WINDOW_UPDATE, 0, 0, b"\0" * 4), PROTOCOL),
    "a window update of a stream that never was": (window(1, 1), PROTOCOL),
    "the connection's window overflows": (window(0, 2**31 - 1), FLOW),
    "a reset of three bytes": (OPEN + raw(wire.RST_STREAM, 0, 1, b"123"), SIZE),
    "a reset of the connection": (raw(wire.RST_STREAM, 0, 0, b"\0" * 4), PROTOCOL),
    "a reset of a stream that never was": (raw(wire.RST_STREAM, 0, 1, b"\0" * 4), PROTOCOL),
    "a reset of a stream that never was, beside one that is": (OPEN + raw(wire.RST_STREAM, 0, 3, b"\0" * 4), PROTOCOL),
    "a reset of a stream of ours that never was": (OPEN + raw(wire.RST_STREAM, 0, 2, b"\0" * 4), PROTOCOL),
    "a priority of four bytes": (raw(wire.PRIORITY, 0, 1, b"1234"), SIZE),
    "a priority of the connection": (raw(wire.PRIORITY, 0, 0, PRIORITY_OF_1), PROTOCOL),
    "a stream that depends on itself": (raw(wire.PRIORITY, 0, 1, PRIORITY_OF_1), PROTOCOL),
    "headers of the connection": (raw(wire.HEADERS, wire.END_HEADERS, 0, WHOLE), PROTOCOL),
    "a stream with an even id": (raw(wire.HEADERS, wire.END_HEADERS, 2, WHOLE), PROTOCOL),
    "a stream with a lower id": (opening(5, headers_of("stream")) + opening(3, headers_of("stream")), PROTOCOL),
    "headers with more padding than frame": (
        raw(wire.HEADERS, wire.END_HEADERS | wire.PADDED, 1, b"\xff" + WHOLE),
        PROTOCOL,
    ),
    "headers with more padding than a priority leaves": (
        OPEN + raw(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM | wire.PADDED | 0x20, 1, b"\1" + bytes(5)),
        PROTOCOL,
    ),
    "headers that are no HPACK": (raw(wire.HEADERS, wire.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), PROTOCOL),
    "an index outside the table": (raw(wire.HEADERS, wire.END_HEADERS, 1, b"\xfe"), PROTOCOL),
    "a header in capitals": (
        raw(wire.HEADERS, wire.END_HEADERS, 1, block([*headers_of("unary"), ("Key", "v")])),
        PROTOCOL,
    ),
    "no path": (opening(1, [pair for pair in headers_of("unary") if pair[0] != ":path"]), PROTOCOL),
    "two paths": (opening(1, [(":path", "/"), *headers_of("unary")]), PROTOCOL),
    "a header of HTTP/1": (opening(1, headers_of("unary", ("connection", "close"))), PROTOCOL),
    "data on the connection": (raw(wire.DATA, 0, 0, b"x"), PROTOCOL),
    "data of a stream that never was": (raw(wire.DATA, 0, 1, b"x"), PROTOCOL),
    "data with more padding than frame": (OPEN + raw(wire.DATA, wire.PADDED, 1, b"\x05abc"), PROTOCOL),
    "data padded with nothing": (OPEN + raw(wire.DATA, wire.PADDED, 1, b""), PROTOCOL),
    "a continuation of nothing": (raw(wire.CONTINUATION, wire.END_HEADERS, 1, WHOLE), PROTOCOL),
    "data within a header block": (raw(wire.HEADERS, 0, 1, WHOLE) + raw(wire.DATA, 0, 1, b"x"), PROTOCOL),
    "data of another stream within a header block": (
        OPEN + raw(wire.HEADERS, 0, 3, WHOLE) + raw(wire.DATA, 0, 1, b"x"),
        PROTOCOL,
    ),
    "a goaway within a header block": (raw(wire.HEADERS, 0, 1, WHOLE) + raw(wire.GOAWAY, 0, 0, b"\0" * 8), PROTOCOL),
    "another stream's continuation": (
        raw(wire.HEADERS, 0, 1, WHOLE) + raw(wire.CONTINUATION, wire.END_HEADERS, 3, b""),
        PROTOCOL,
    ),
    "a push of a client": (OPEN + raw(wire.PUSH_PROMISE, wire.END_HEADERS, 1, b"\0\0\0\2" + WHOLE), PROTOCOL),
    "data within a push": (
        OPEN + raw(wire.PUSH_PROMISE, 0, 1, b"\0\0\0\2" + WHOLE) + raw(wire.DATA, 0, 1, b"x"),
        PROTOCOL,
    ),
    "a frame that is too large": (OPEN + raw(wire.DATA, 0, 1, b"", length=16 * 1024 + 1), SIZE),
    "trailers that do not end": (OPEN + opening(1, [("a", "b")]), PROTOCOL),
}


@pytest.mark.parametrize("case", FATAL)
async def test_an_illegal_frame_ends_only_its_connection(case: str) -> None:
    bad, code = FATAL[case]
    async with victim() as server, peer(server.port) as attacker:
        await attacker.send(bad)
        assert await attacker.closed() is code
        await server.serves()


STREAM: dict[str, tuple[bytes, ErrorCodes]] = {
    "data after the end": (ASKED + message(1, b"more"), CLOSED),
    "headers after the end": (ASKED + opening(1, [("a", "b")], end=True), CLOSED),
    "the stream's window overflows": (ASKED + window(1, 2**31 - 1), FLOW),
    "more bytes than the stream's window": (
        opening(1, headers_of("upload"))
        + b"".join(message(1, b"x" * 16000, end=False) for _ in range(4))
        + raw(wire.DATA, 0, 1, b"x" * 16000),
        FLOW,
    ),
    "less data than content-length": (UPLOAD_OF_11 + message(1, b"short"), PROTOCOL),
    "more data than content-length": (UPLOAD_OF_11 + message(1, b"too long", end=False), PROTOCOL),
    "more data than content-length in a second frame": (
        UPLOAD_OF_11 + message(1, b"honest", end=False) + message(1, b""),
        PROTOCOL,
    ),
    "less data than content-length, and trailers": (
        UPLOAD_OF_11 + message(1, b"short", end=False) + opening(1, [("a", "b")], end=True),
        PROTOCOL,
    ),
    "padding in place of data": (
        UPLOAD_OF_11 + raw(wire.DATA, wire.PADDED | wire.END_STREAM, 1, b"\1\0\0\0\0\4data\0"),
        PROTOCOL,
    ),
    "content-length and no data": (opening(1, headers_of("upload", ("content-length", "1")), end=True), PROTOCOL),
    "a call whose message is shorter than content-length": (
        opening(1, headers_of("unary", ("content-length", "99"))) + message(1, b"honest"),
        PROTOCOL,
    ),
}


@pytest.mark.parametrize("case", STREAM)
async def test_a_frame_illegal_for_a_stream_ends_that_stream_and_its_call(case: str) -> None:
    bad, code = STREAM[case]
    async with victim() as server, peer(server.port) as attacker:
        await attacker.send(bad, call(3, "unary", b"beside it"))
        await attacker.pong()
        assert attacker.resets().get(1) is code, attacker.seen
        await server.idle()
        await attacker.pong()
        assert 3 in attacker.answered()
        assert server.handled.uploads == 0
        await server.serves()


@pytest.mark.parametrize("kind", [0x0B, 0x20, 0xFF])
async def test_a_frame_of_an_unknown_kind_is_ignored(kind: int) -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(raw(kind, 0xFF, 0, b"whatever"), raw(kind, 0, 1, b"x" * 100), call(1, "unary"))
        await client.until_answered(1)


async def test_padding_is_not_part_of_a_message() -> None:
    body = message(1, b"abc")[9:]
    async with victim() as server, peer(server.port) as client:
        await client.send(
            opening(1, headers_of("unary", ("content-length", str(len(body))))),
            raw(wire.DATA, wire.PADDED | wire.END_STREAM, 1, b"\x04" + body + b"\0" * 4),
        )
        await client.until_answered(1)
        assert server.handled.begun == 1


async def test_the_reserved_bit_of_a_window_update_is_ignored() -> None:
    increment = struct.pack(">L", 1 << 31 | 1)
    async with victim() as server, peer(server.port) as client:
        await client.send(raw(wire.WINDOW_UPDATE, 0, 0, increment), opening(1, headers_of("unary")))
        await client.send(raw(wire.WINDOW_UPDATE, 0, 1, increment))
        await client.send(message(1, b"abc"))
        await client.until_answered(1)
