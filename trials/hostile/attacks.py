"""Endless input of peers without a credential: the frames after the preface and settings of one connection."""

import itertools
import struct
from collections.abc import Callable, Iterator

from hpack import Encoder

from services.runtime.http2.header_blocks import encode_block
from tests.support.http2 import wire
from tests.support.http2.wire import block, headers_of, message, opening, raw, window

ATTACH = "/headrace.v1.AgentService/Attach"
QUERY = "/headrace.v1.AgentService/Query"
CANCEL = struct.pack(">L", 8)

QUIET = "nothing"
"""The class that sends nothing, to measure the other costs."""

Attack = Callable[[], Iterator[bytes]]


def _stream_ids() -> Iterator[int]:
    return itertools.count(1, 2)


def table_bomb(times: int = 14) -> Iterator[bytes]:
    """Each frame of about 100 bytes refers to a 3.9 kB entry fourteen times; our settings allow three times."""
    # The request adds nothing to the table, so the entry keeps its index.
    request = encode_block((name.encode(), value.encode()) for name, value in headers_of("", path=ATTACH))
    first = request + b"\x40\x01a\x7f\xbd\x1d" + b"v" * 3900
    named = request + b"\xbe" * times
    for stream_id in _stream_ids():
        yield raw(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, stream_id, first if stream_id == 1 else named)


def huffman_headers() -> Iterator[bytes]:
    head = Encoder().encode(headers_of("", path=ATTACH), huffman=True)
    value = Encoder().encode([("x", "~" * 4000)], huffman=True)
    for stream_id in _stream_ids():
        yield raw(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, stream_id, head + value)


def unknown_methods() -> Iterator[bytes]:
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path="/x"), end=True)


def calls_without_credential() -> Iterator[bytes]:
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path=ATTACH), end=True)


def bodies_without_credential() -> Iterator[bytes]:
    """Requests of the maximum size that are never finished."""
    body = b"\0" + struct.pack(">L", 3_900_000) + b"x" * (16 * 1024 - 5)
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path=QUERY))
        yield raw(wire.DATA, 0, stream_id, body)
        for _ in range(3):
            yield raw(wire.DATA, 0, stream_id, b"x" * (16 * 1024 - 10))


def health_checks() -> Iterator[bytes]:
    """Health checks, which need no credential, that are never finished."""
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path="/grpc.health.v1.Health/Check"))
        yield raw(wire.DATA, 0, stream_id, b"\0" + struct.pack(">L", 3_900_000) + b"x" * (16 * 1024 - 5))
        for _ in range(3):
            yield raw(wire.DATA, 0, stream_id, b"x" * (16 * 1024 - 10))


def health_watches() -> Iterator[bytes]:
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path="/grpc.health.v1.Health/Watch")) + message(stream_id, b"")


def rapid_reset() -> Iterator[bytes]:
    for stream_id in _stream_ids():
        yield opening(stream_id, headers_of("", path=ATTACH)) + raw(wire.RST_STREAM, 0, stream_id, CANCEL)


def resets_of_closed_streams() -> Iterator[bytes]:
    yield opening(1, headers_of("", path="/x"), end=True)
    yield from itertools.repeat(raw(wire.RST_STREAM, 0, 1, CANCEL))


def continuations() -> Iterator[bytes]:
    yield raw(wire.HEADERS, 0, 1, block(headers_of("", path=ATTACH)))
    yield from itertools.repeat(raw(wire.CONTINUATION, 0, 1, b""))


def data_with_the_reserved_bit() -> Iterator[bytes]:
    yield opening(1, headers_of("", path=QUERY))
    yield from itertools.repeat(raw(wire.DATA, 0, 1 | 1 << 31, b""))


ATTACKS: dict[str, Attack] = {
    "table bomb": table_bomb,
    "table bomb in our settings": lambda: table_bomb(3),
    "Huffman headers": huffman_headers,
    "unknown methods": unknown_methods,
    "calls without a credential": calls_without_credential,
    "bodies without a credential": bodies_without_credential,
    "health checks": health_checks,
    "health watches": health_watches,
    "connections": lambda: iter(()),
    "rapid reset": rapid_reset,
    "resets of closed streams": resets_of_closed_streams,
    "continuations": continuations,
    "data with the reserved bit": data_with_the_reserved_bit,
    "window updates": lambda: itertools.repeat(window(0, 1)),
    "unknown frames": lambda: itertools.repeat(raw(0xFA, 0, 0, b"")),
    "pings": lambda: itertools.repeat(raw(wire.PING, 0, 0, b"12345678")),
    "answers to pings": lambda: itertools.repeat(raw(wire.PING, wire.ACK, 0, b"12345678")),
    "settings": lambda: itertools.repeat(raw(wire.SETTINGS_KIND, 0, 0, b"")),
    "answers to settings": lambda: itertools.repeat(raw(wire.SETTINGS_KIND, wire.ACK, 0, b"")),
    "priorities": lambda: itertools.repeat(raw(wire.PRIORITY, 0, 1, b"\0\0\0\0\0")),
    "window updates of a stream": lambda: itertools.chain(
        [opening(1, headers_of("", path=QUERY))], itertools.repeat(raw(wire.WINDOW_UPDATE, 0, 1, struct.pack(">L", 1)))
    ),
}
