"""Unpacks bodies, never beyond their limit."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from services.tools.errors import ToolFailed

SIZE_BYTES_MAX = 5 * 1024 * 1024

ENCODINGS = {"": None, "identity": None, "gzip": 31, "x-gzip": 31, "deflate": 15}
"""zlib's window bits by Content-Encoding, None when not packed; no others are asked for."""

ACCEPT_ENCODING = "gzip, deflate"


async def read_body(pieces: AsyncIterator[bytes], encoding: str) -> bytes:
    """Reads and unpacks a body; raises ToolFailed when it is larger than SIZE_BYTES_MAX or cannot be unpacked."""
    encoding = encoding.strip().lower()
    if encoding not in ENCODINGS:
        raise ToolFailed(f"the answer is packed as {encoding!r}, which was not asked for")
    unpacker, body = _Unpacker(ENCODINGS[encoding]), bytearray()
    async for piece in pieces:
        body += unpacker.feed(piece, SIZE_BYTES_MAX + 1 - len(body))
        if len(body) > SIZE_BYTES_MAX:
            raise ToolFailed(f"the answer is larger than {SIZE_BYTES_MAX // (1024 * 1024)} MiB")
    if not unpacker.is_complete:
        raise ToolFailed("the answer's compressed data ends too early")
    return bytes(body)


class _Unpacker:
    def __init__(self, window_bits: int | None) -> None:
        self._zlib = None if window_bits is None else zlib.decompressobj(window_bits)
        self._is_first = True
        self._packed_bytes = 0

    @property
    def is_complete(self) -> bool:
        return self._zlib is None or self._zlib.eof or not self._packed_bytes

    def feed(self, piece: bytes, size_bytes_max: int) -> bytes:
        """After `size_bytes_max` bytes of output there is nothing more to feed."""
        if self._zlib is None:
            return piece[:size_bytes_max]
        self._packed_bytes += len(piece)
        if self._zlib.eof:  # what follows the end is padding
            return b""
        # Some servers send deflate without zlib's header; its first byte tells (RFC 1950, compression method 8).
        if self._is_first and piece:
            self._is_first = False
            if piece[0] & 0x0F != 8 and piece[:1] != b"\x1f":
                self._zlib = zlib.decompressobj(-15)
        try:
            return self._zlib.decompress(piece, size_bytes_max)
        except zlib.error as error:
            raise ToolFailed("the answer's compressed data is damaged") from error
