"""Generates frames and header blocks as an attacker might: valid ones, slightly changed, truncated, or out of
order.
"""

import struct
from random import Random

from hpack import Encoder

from tests.support.http2 import wire
from tests.support.http2.wire import raw

RESERVED_BIT = 1 << 31
STEPS_MAX = 8
MESSAGE = b"\0" + struct.pack(">L", 16_000) + b"x" * 16_000
SETTING_VALUES = (0, 1, 2, 100, 16_384, 65_535, 2**24 - 1, 2**24, 2**31 - 1, 2**31)

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/b"), (b":authority", b"c")]
NAMES = [
    *(b":method", b":scheme", b":path", b":authority", b":status", b":protocol", b":", b"", b"te", b"host", b"cookie"),
    *(b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"content-length", b"Upper"),
    *(b"a b", b"a:b", b"a\0", b"a\n", b"\xff", b"x-bin", b"_", b"(", b"content-type", b"a" * 200),
]
VALUES = [
    *(b"", b"POST", b"GET", b"CONNECT", b"http", b"/", b"*", b"c", b"trailers", b"gzip", b"5", b"-1", b"5, 5", b"\xff"),
    *(b" a", b"a ", b"\ta", b"a\t", b"a\tb", b"a\rb", b"a\nb", b"a\0b", b"a\x7fb", b"a\x01b", b"a" * 300, b"v" * 9000),
]


def make_case(random: Random) -> list[bytes]:
    """Return the frames sent by one peer; the first piece is the preface and its settings."""
    peer = _Peer(random)
    make = [
        *[peer.make_headers] * 6,
        *[peer.make_data] * 5,
        *(peer.make_settings, peer.make_window, peer.make_reset, peer.make_priority, peer.make_ping, peer.make_other),
    ]
    steps = [peer.make_headers, *random.choices(make, k=random.randrange(STEPS_MAX))]
    frames = [frame for step in steps for frame in step()]
    return [wire.PREFACE + wire.SETTINGS, *(_change(random, frame) for frame in frames)]


class _Peer:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._encoder = Encoder()
        self._opened = [-1]

    def _choose(self, odds: float) -> bool:
        return self._random.random() < odds

    def _find_stream(self) -> int:
        """Return an opened stream, or rarely any other; the reserved bit must be ignored."""
        odd = self._random.choice((0, 1, 2, 5, 2**31 - 1))
        stream_id = odd if self._choose(0.02) else max(self._random.choice(self._opened), 1)
        return stream_id | (RESERVED_BIT if self._choose(0.1) else 0)

    def _open_stream(self) -> int:
        if self._choose(0.1):
            return self._find_stream()
        self._opened.append(self._opened[-1] + self._random.choice((2, 2, 2, 4)))
        return self._opened[-1]

    def make_headers(self) -> list[bytes]:
        random, block = self._random, self._make_block()
        stream_id, flags = self._open_stream(), random.choice((0, 0, wire.END_STREAM))
        if self._choose(0.85):
            return [raw(wire.HEADERS, flags | wire.END_HEADERS, stream_id, block)]
        cut = random.randint(0, len(block))
        between = self.make_other() if self._choose(0.1) else []
        rest = raw(wire.CONTINUATION, wire.END_HEADERS, stream_id, block[cut:])
        return [raw(wire.HEADERS, flags, stream_id, block[:cut]), *between, rest]

    def _make_block(self) -> bytes:
        random = self._random
        headers = [*REQUEST] if self._choose(0.9) else [(b"grpc-status", b"0")]
        for _ in range(random.choice((0, 0, 0, 0, 1, 1, 2, 4))):
            at, header = random.randrange(len(headers) + 1), (random.choice(NAMES), random.choice(VALUES))
            match random.randrange(8):
                case 0 if at < len(headers):
                    headers[at] = header
                case 1 if at < len(headers) > 1:
                    del headers[at]
                case 2:
                    random.shuffle(headers)
                case 3 | 4:
                    headers.insert(at, header)
                case _:
                    headers.append((b"x-" + random.choice((b"a", b"b", b"c")), random.choice(VALUES)))
        block = bytearray(self._encoder.encode(headers, huffman=self._choose(0.5)))
        if self._choose(0.04):
            block[random.randrange(len(block))] = random.randrange(256)
        if self._choose(0.01):
            del block[random.randrange(len(block)) :]
        return random.randbytes(random.randint(0, 40)) if self._choose(0.01) else bytes(block)

    def make_data(self) -> list[bytes]:
        random = self._random
        bodies = (b"", b"\0\0\0\0\1x", b"\0\0\0\0\0", MESSAGE)
        flags, body = random.choice((0, 0, 0, wire.END_STREAM)), random.choice(bodies)
        if self._choose(0.2):
            size = random.randrange(10)
            flags, body = flags | wire.PADDED, bytes((size,)) + body + bytes(size if self._choose(0.9) else 0)
        return [raw(wire.DATA, flags, self._find_stream(), body)]

    def make_settings(self) -> list[bytes]:
        random = self._random
        if self._choose(0.3):
            return [raw(wire.SETTINGS_KIND, wire.ACK, 0, b"")]
        pairs = [struct.pack(">HL", random.choice((1, 2, 3, 4, 5, 6, 8, 99)), random.choice(SETTING_VALUES))]
        return [raw(wire.SETTINGS_KIND, random.choice((0, 0, 0, 0, 0, wire.ACK)), 0, b"".join(pairs))]

    def make_window(self) -> list[bytes]:
        increment = struct.pack(">L", self._random.choice((1, 1, 1, 65_535, 2**31 - 1, 2**31, 0)))
        return [raw(wire.WINDOW_UPDATE, 0, self._random.choice((0, self._find_stream())), increment)]

    def make_reset(self) -> list[bytes]:
        return [raw(wire.RST_STREAM, 0, self._find_stream(), struct.pack(">L", self._random.choice((0, 8, 99))))]

    def make_priority(self) -> list[bytes]:
        depends = struct.pack(">LB", self._random.choice((0, 0, 0, 0, 9, 11, 2**31 + 1)), self._random.randrange(256))
        return [raw(wire.PRIORITY, 0, self._find_stream(), depends)]

    def make_ping(self) -> list[bytes]:
        size = 8 if self._choose(0.9) else self._random.randrange(10)
        return [raw(wire.PING, self._random.choice((0, wire.ACK)), 0, self._random.randbytes(size))]

    def make_other(self) -> list[bytes]:
        """Return a frame of random kind, flags and payload."""
        random = self._random
        kind = random.choice((*range(wire.GOAWAY), wire.WINDOW_UPDATE, wire.CONTINUATION, 10, 12, 16, 200, 250, 251))
        return [
            raw(kind, random.randrange(256), self._find_stream(), random.randbytes(random.choice((0, 4, 5, 8, 20))))
        ]


def _change(random: Random, frame: bytes) -> bytes:
    """Return the frame, rarely with one bit changed; its length stays correct."""
    if random.random() > 0.02:
        return frame
    changed = bytearray(frame)
    at = random.choice((3, 4, random.randrange(3, len(frame))))
    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)
