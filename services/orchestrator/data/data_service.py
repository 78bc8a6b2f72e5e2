"""DataService: exports from all services as one tar file, and memory's records of erasures and legal holds."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import Interrupted
from headrace.streams import reading
from headrace.v1 import data_pb2
from headrace.v1.data_pb2_grpc import DataServiceServicer
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import check_scope, require_identity
from services.runtime.clock import now_ms
from services.runtime.rpc.peer_calls import translating_peer_errors

if TYPE_CHECKING:
    from services.runtime.rpc.interceptors import Context


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
        """`about` holds further fields of the manifest."""
        self._about = about
        self._entries: list[_Entry] = []

    async def pack(self, pieces: AsyncIterable[data_pb2.ArchivePiece]) -> AsyncGenerator[bytes]:
        """Yield the archive's bytes for these pieces.

        Raises:
            Interrupted: An entry does not have its declared size.
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


PIECE_BYTES = 64 * 1024


class DataService(DataServiceServicer):
    def __init__(self, peers: Peers) -> None:
        self._stored = peers.data
        self._tools = peers.tools

    async def ExportData(
        self, request: data_pb2.ExportDataRequest, context: Context
    ) -> AsyncGenerator[data_pb2.ExportDataResponse]:
        who = require_identity()
        if request.user not in ("", who.user):
            check_scope(who, "admin")
        user = request.user or who.user
        wanted = data_pb2.ExportDataRequest(user=user)
        archive = Archive({"tenant": who.tenant, "user": user, "madeBy": who.user})
        buffer = bytearray()
        for read in (self._stored.ReadStoredData, self._tools.ReadOwnedData):
            with translating_peer_errors():
                async with reading(read(wanted)) as pieces, aclosing(archive.pack(pieces)) as packed:
                    async for data in packed:
                        buffer += data
                        if len(buffer) >= PIECE_BYTES:
                            yield data_pb2.ExportDataResponse(data=bytes(buffer))
                            buffer.clear()
        buffer += archive.finish()
        for start in range(0, len(buffer), PIECE_BYTES):
            yield data_pb2.ExportDataResponse(data=bytes(buffer[start : start + PIECE_BYTES]))

    async def EraseData(self, request: data_pb2.EraseDataRequest, context: Context) -> data_pb2.EraseDataResponse:
        return await self._stored.EraseData(request)

    async def GetErasure(self, request: data_pb2.GetErasureRequest, context: Context) -> data_pb2.GetErasureResponse:
        return await self._stored.GetErasure(request)

    async def ListErasures(
        self, request: data_pb2.ListErasuresRequest, context: Context
    ) -> data_pb2.ListErasuresResponse:
        return await self._stored.ListErasures(request)

    async def PlaceHold(self, request: data_pb2.PlaceHoldRequest, context: Context) -> data_pb2.PlaceHoldResponse:
        return await self._stored.PlaceHold(request)

    async def ListHolds(self, request: data_pb2.ListHoldsRequest, context: Context) -> data_pb2.ListHoldsResponse:
        return await self._stored.ListHolds(request)

    async def ReleaseHold(self, request: data_pb2.ReleaseHoldRequest, context: Context) -> data_pb2.ReleaseHoldResponse:
        return await self._stored.ReleaseHold(request)
