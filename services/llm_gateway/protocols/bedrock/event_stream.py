"""A parser of AWS's event streams: binary messages of headers and a payload, each with two checksums.

https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html (2026-11).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from headrace.errors import BadFrame
from headrace.sse import Take

MESSAGE_BYTES_MAX = 16 * 1024 * 1024

EVENT, DOCUMENT = "event", "document"
"""Kinds of frames, by id: an event, or a document instead of a stream; any other id is an exception."""

_PRELUDE = struct.Struct("!III")
_CHECKSUM_BYTES: Final = 4
_STRING: Final = 7
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Length in bytes of a header's value, for types whose values all have one length."""


class EventStreamReader:
    """Cuts a body into messages, and holds at most one.

    A frame's data is the payload, its event the kind of event or exception.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_document: bool | None = None

    def push(self, chunk: bytes, take: Take) -> None:
        """Pass each message that `chunk` completes to `take`.

        Raises:
            BadFrame: A message is too large or damaged.
        """
        buffer = self._buffer
        buffer += chunk
        if self._is_document is None and buffer:
            self._is_document = buffer[0] > 1  # of a message, it would mean more than the limit
        while not self._is_document and len(buffer) >= _PRELUDE.size:
            size, headers_size, checksum = _PRELUDE.unpack_from(buffer)
            if checksum != zlib.crc32(buffer[:8]) or not 16 + headers_size <= size <= MESSAGE_BYTES_MAX:
                raise BadFrame("a message of the event stream has a damaged prelude, or is too large")
            if len(buffer) < size:
                break
            message = bytes(buffer[:size])
            del buffer[:size]
            if zlib.crc32(message[:-_CHECKSUM_BYTES]) != int.from_bytes(message[-_CHECKSUM_BYTES:]):
                raise BadFrame("a message of the event stream is damaged")
            end = _PRELUDE.size + headers_size
            headers = _read_headers(message[_PRELUDE.size : end])
            kind = headers.get(":message-type", EVENT)
            name = headers.get(f":{kind}-type") or headers.get(":error-code")
            take(message[end:-_CHECKSUM_BYTES], name, kind)
        if len(buffer) > MESSAGE_BYTES_MAX:
            raise BadFrame(f"the answer is larger than {MESSAGE_BYTES_MAX} bytes", sizeBytesMax=MESSAGE_BYTES_MAX)

    def push_rest(self, take: Take) -> None:
        """Pass on a document; an incomplete message is ignored."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        if self._is_document and rest.strip():
            take(rest, None, DOCUMENT)


def _read_headers(data: bytes) -> dict[str, str]:
    """Read the headers with text values."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            size = _VALUE_BYTES.get(kind)
            if size is None:
                size = int.from_bytes(data[at : at + 2])
                at += 2
            if kind == _STRING:
                headers[name] = data[at : at + size].decode()
            at += size
    except (IndexError, UnicodeDecodeError) as error:
        raise BadFrame("a message of the event stream has damaged headers") from error
    return headers
