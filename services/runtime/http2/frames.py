"""Frames that we encode and decode ourselves, for speed or because h2 would end the connection.

https://www.rfc-editor.org/rfc/rfc9113#section-6
"""

from __future__ import annotations

import struct

from h2.exceptions import ProtocolError

from services.runtime.http2.limits import FRAME_BYTES_MAX

PREFACE_BYTES = 24
HEAD_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

OF_HEADERS = frozenset({HEADERS, PUSH_PROMISE, CONTINUATION})
"""Frames of header blocks; other frames must not come in between."""

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

LAST_STREAM_ID = 2**31 - 1

unpack_head = struct.Struct(">BHBBL").unpack_from
"""Return length (high byte, low two), type, flags and stream id."""

unpack_prefix = struct.Struct(">BL").unpack_from
"""Return whether a gRPC message is compressed, and its length."""

PREFIX_BYTES = 5

_PADDED_PRIORITY_BYTES = HEAD_BYTES + 1 + 5
"""Where a header block begins if both are present."""

pack_message_head = struct.Struct(">BHBBLBL").pack
"""The head of a DATA frame (size in two parts, type, flags, stream) and its message's prefix (compressed, size)."""

_head = struct.Struct(">BHBBL").pack
_window_update = struct.Struct(">BHBBLL").pack
_goaway = struct.Struct(">BHBBLLL").pack


def encode_message_head(stream_id: int, size_bytes: int, flags: int = 0) -> bytes:
    """Encode the frame head and prefix of a message that fits into one DATA frame."""
    length = size_bytes + PREFIX_BYTES
    return pack_message_head(length >> 16, length & 0xFFFF, DATA, flags, stream_id, 0, size_bytes)


def encode_prefix(size_bytes: int) -> bytes:
    return b"\0" + size_bytes.to_bytes(4)


def encode_data_head(stream_id: int, length: int, flags: int = 0) -> bytes:
    return _head(length >> 16, length & 0xFFFF, DATA, flags, stream_id)


def encode_headers(stream_id: int, block: bytes, *, is_end: bool) -> bytes:
    kind, flags, before = HEADERS, END_STREAM if is_end else 0, b""
    while len(block) > FRAME_BYTES_MAX:
        before += _head(0, FRAME_BYTES_MAX, kind, flags, stream_id) + block[:FRAME_BYTES_MAX]
        kind, flags, block = CONTINUATION, 0, block[FRAME_BYTES_MAX:]
    return before + _head(0, len(block), kind, flags | END_HEADERS, stream_id) + block


def encode_window_update(stream_id: int, increment: int) -> bytes:
    return _window_update(0, 4, WINDOW_UPDATE, 0, stream_id, increment)


def encode_goaway(last_stream_id: int, error_code: int = 0) -> bytes:
    return _goaway(0, 8, GOAWAY, 0, 0, last_stream_id, error_code)


def correct_frame(kind: int, flags: int, frame: bytes) -> bytes:
    """Return a frame in the form that h2 needs: h2 reads the reserved bit of a window's increment.

    Raises:
        ProtocolError: The padding overlaps the priority, which h2 does not detect.
    """
    first = int.from_bytes(frame[HEAD_BYTES : HEAD_BYTES + 1])
    if kind == HEADERS and flags & PADDED and flags & HAS_PRIORITY and first + _PADDED_PRIORITY_BYTES > len(frame):
        raise ProtocolError("a frame's padding is longer than the frame")
    if kind == WINDOW_UPDATE and first & 0x80:
        return frame[:HEAD_BYTES] + bytes((first & 0x7F,)) + frame[HEAD_BYTES + 1 :]
    return frame
