"""A peer that speaks HTTP/2 byte by byte, correctly or not: a client of our server, or a server for our channel."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.errors import ErrorCodes
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.support.http2.ends import SERVICE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = SettingsFrame(0).serialize()

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS_KIND, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8

Header = tuple[str, str]


def raw(kind: int, flags: int, stream_id: int, payload: bytes, *, length: int | None = None) -> bytes:
    """A frame of any shape."""
    size = len(payload) if length is None else length
    return struct.pack(">BHBBL", size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def headers_of(method: str, *more: Header, path: str | None = None) -> list[Header]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path or f"/{SERVICE}/{method}"),
        (":authority", "test"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]


def block(headers: Iterable[Header]) -> bytes:
    """Encode a header block independently of earlier blocks."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode([*headers], huffman=False)


def opening(stream_id: int, headers: Iterable[Header], *, end: bool = False) -> bytes:
    return raw(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream_id, block(headers))


def in_pieces(stream_id: int, headers: Iterable[Header]) -> bytes:
    """Return the frames of a header list that is too large for one frame."""
    whole, size = block(headers), 16 * 1024
    first, *others = (whole[at : at + size] for at in range(0, len(whole), size))
    *between, last = others
    return b"".join(
        (
            raw(HEADERS, 0, stream_id, first),
            *(raw(CONTINUATION, 0, stream_id, piece) for piece in between),
            raw(CONTINUATION, END_HEADERS, stream_id, last),
        )
    )


def message(stream_id: int, body: bytes, *, end: bool = True) -> bytes:
    return raw(DATA, END_STREAM if end else 0, stream_id, b"\0" + struct.pack(">L", len(body)) + body)


def call(stream_id: int, method: str, body: bytes = b"") -> bytes:
    """A whole request."""
    return opening(stream_id, headers_of(method)) + message(stream_id, body)


@dataclass(slots=True)
class Peer:
    """One connection, and the frames received on it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seen: list[Frame] = field(default_factory=list[Frame])

    async def send(self, *pieces: bytes) -> None:
        """Send the pieces at once; an error because the other end has closed is ignored."""
        if self.writer.is_closing():
            return  # uvloop would raise
        self.writer.write(b"".join(pieces))
        try:
            await self.writer.drain()
        except ConnectionError:
            return

    async def next(self) -> Frame | None:
        """The next frame; None: the other end has closed."""
        try:
            head = await self.reader.readexactly(9)
            frame, length = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(await self.reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.seen.append(frame)
        return frame

    async def until(self, kind: type[Frame]) -> Frame:
        """The next frame of a kind."""
        while (frame := await self.next()) is not None:
            if isinstance(frame, kind) and "ACK" not in frame.flags:
                return frame
        raise AssertionError(f"closed without {kind.__name__}; seen: {self.seen}")

    async def closed(self) -> ErrorCodes | None:
        """Read until the other end closes; the code of its last GOAWAY."""
        while await self.next() is not None:
            pass
        go_aways = [frame for frame in self.seen if isinstance(frame, GoAwayFrame)]
        return ErrorCodes(go_aways[-1].error_code) if go_aways else None

    async def pong(self) -> list[Frame]:
        """What has come when everything sent so far is handled."""
        first = len(self.seen)
        await self.send(PingFrame(0, opaque_data=b"are here").serialize())
        while (frame := await self.next()) is not None:
            if isinstance(frame, PingFrame) and frame.opaque_data == b"are here":
                break
        return self.seen[first:-1]

    def resets(self) -> dict[int, ErrorCodes]:
        """Why each stream was reset first: frames that were on their way then are answered by a reset of their own."""
        found: dict[int, ErrorCodes] = {}
        for frame in self.seen:
            if isinstance(frame, RstStreamFrame):
                found.setdefault(frame.stream_id, ErrorCodes(frame.error_code))
        return found

    def answered(self) -> set[int]:
        """The streams that were answered to their end."""
        ends = (frame for frame in self.seen if isinstance(frame, HeadersFrame | DataFrame))
        return {frame.stream_id for frame in ends if "END_STREAM" in frame.flags}

    async def until_answered(self, stream_id: int) -> None:
        while stream_id not in self.answered():
            assert await self.next() is not None, self.seen

    def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def peer(port: int, *, greets: bool = True, settings: dict[int, int] | None = None) -> AsyncGenerator[Peer]:
    """Connect a client; if `greets`, it sends the preface and its settings."""
    connection = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        if greets:
            await connection.send(PREFACE, SettingsFrame(0, settings=settings or {}).serialize())
        yield connection
    finally:
        connection.close()


def window(stream_id: int, increment: int) -> bytes:
    return WindowUpdateFrame(stream_id, window_increment=increment).serialize()


def reset(stream_id: int, code: int) -> bytes:
    return raw(RST_STREAM, 0, stream_id, struct.pack(">L", code))


def setting(identifier: int, value: int) -> bytes:
    return raw(SETTINGS_KIND, 0, 0, struct.pack(">HL", identifier, value))
