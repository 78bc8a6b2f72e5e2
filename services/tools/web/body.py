"""Unpacks bodies, never beyond their limit."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from services.tools.errors import ToolFailed

SIZE_BYTES_MAX = 5 * 1024 * 1024

GZIP, GZIP_BEGIN = 31, b"\x1f\x8b"

ENCODINGS = {"": None, "identity": None, "gzip": GZIP, "x-gzip": GZIP, "deflate": 15}
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
        self._is_gzip = window_bits == GZIP
        self._is_first = True
        self._is_padding = False
        self._packed_bytes = 0
        self._behind = b""
        """The one byte that has come behind the end, which may begin another file."""

    @property
    def is_complete(self) -> bool:
        return self._zlib is None or self._zlib.eof or not self._packed_bytes

    def feed(self, piece: bytes, size_bytes_max: int) -> bytes:
        """After `size_bytes_max` bytes of output there is nothing more to feed."""
        if self._zlib is None:
            return piece[:size_bytes_max]
        self._packed_bytes += len(piece)
        # Some servers send deflate without zlib's header; its first byte tells (RFC 1950, compression method 8).
        if self._is_first and piece:
            self._is_first = False
            if piece[0] & 0x0F != 8 and piece[:1] != GZIP_BEGIN[:1]:
                self._zlib = zlib.decompressobj(-15)
        try:
            return self._unpack(piece, size_bytes_max)
        except zlib.error as error:
            raise ToolFailed("the answer's compressed data is damaged") from error

    def _unpack(self, piece: bytes, size_bytes_max: int) -> bytes:
        assert self._zlib is not None
        unpacker, unpacked = self._zlib, b""
        while piece and len(unpacked) < size_bytes_max and not self._is_padding:
            if unpacker.eof:
                # Gzip files one behind the other are one (RFC 1952, 2.2); all else behind the end is padding.
                piece, self._behind = self._behind + piece, b""
                if len(piece) < len(GZIP_BEGIN):
                    self._behind = piece
                    break
                self._is_padding = not (self._is_gzip and piece.startswith(GZIP_BEGIN))
                if self._is_padding:
                    break
                unpacker = self._zlib = zlib.decompressobj(GZIP)
            unpacked += unpacker.decompress(piece, size_bytes_max - len(unpacked))
            piece = unpacker.unused_data
        return unpacked
