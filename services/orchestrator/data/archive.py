"""Pieces of entries as one tar file with a manifest, in bounded memory."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import Interrupted
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from headrace.v1 import data_pb2

FORMAT = 1
"""Version of the archive's layout."""

MANIFEST = "manifest.json"

_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(slots=True)
class _Entry:
    name: str
    size_bytes: int
    sha256: str = ""

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "sizeBytes": self.size_bytes, "sha256": self.sha256}


class Archive:
    """One archive, from its first byte to the manifest, which is its last entry."""

    def __init__(self, about: dict[str, Any]) -> None:
        """`about` is what the manifest says beside the entries."""
        self._about = about
        self._entries: list[_Entry] = []

    async def pack(self, pieces: AsyncIterable[data_pb2.ArchivePiece]) -> AsyncGenerator[bytes]:
        """Yield the bytes of the entries that the pieces make.

        Raises:
            Interrupted: An entry has not as many bytes as were said.
        """
        left, digest = 0, hashlib.sha256()
        async for piece in pieces:
            if piece.name:
                self._close_entry(left, digest.hexdigest())
                left, digest = piece.size_bytes, hashlib.sha256()
                self._entries.append(_Entry(piece.name, piece.size_bytes))
                yield _make_header(piece.name, piece.size_bytes, piece.modified_at)
            left -= len(piece.data)
            digest.update(piece.data)
            yield piece.data
            if not left:
                yield _pad(self._entries[-1].size_bytes)
        self._close_entry(left, digest.hexdigest())

    def finish(self) -> bytes:
        """Return the manifest and the end of the file."""
        made_at = now_ms()
        manifest = (
            {"format": FORMAT, "madeAt": made_at}
            | self._about
            | {"entries": [entry.describe() for entry in self._entries]}
        )
        data = msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
        return _make_header(MANIFEST, len(data), made_at) + data + _pad(len(data)) + _END

    def _close_entry(self, left: int, digest: str) -> None:
        if left:
            raise Interrupted("an entry of the archive was cut short; ask for it again")
        if self._entries and not self._entries[-1].sha256:
            self._entries[-1].sha256 = digest


def _make_header(name: str, size_bytes: int, modified_at: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size_bytes, modified_at // 1000, 0o600
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _pad(size_bytes: int) -> bytes:
    return bytes(-size_bytes % tarfile.BLOCKSIZE)
