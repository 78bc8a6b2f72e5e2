"""What this service keeps of a user, as pieces of an archive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from headrace.v1 import data_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_ms
from services.tools.workspace.quota import FILES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.tools.owned.chats import ChatFolders
    from services.tools.workspace.workspace import Workspace, WorkspaceFile

PIECE_BYTES = 64 * 1024


async def read_owned(
    folders: ChatFolders, owner: Identity, servers: Sequence[str]
) -> AsyncGenerator[data_pb2.ArchivePiece]:
    """Yield files of the owner's workspaces, records of calls, and the MCP servers that the owner has authorized."""
    for chat_id, of in await asyncio.to_thread(lambda: list(folders.list_owned())):
        if of != owner:
            continue
        async for piece in _read_workspace(folders, owner, chat_id):
            yield piece
        for name, data in await asyncio.to_thread(_read_records, folders, chat_id):
            async for piece in _cut(name, data):
                yield piece
    lines = b"".join(msgspec.json.encode({"server": server}) + b"\n" for server in servers)
    async for piece in _cut("authorizations.jsonl", lines):
        yield piece


async def _read_workspace(folders: ChatFolders, owner: Identity, chat_id: str) -> AsyncGenerator[data_pb2.ArchivePiece]:
    def list_files() -> tuple[Workspace, list[WorkspaceFile]] | None:
        with acting_as(owner):
            try:
                workspace = folders.workspaces.find_workspace(chat_id)
                return workspace, workspace.list_files("", FILES_MAX)
            except OSError:  # there are only records of calls
                return None

    found = await asyncio.to_thread(list_files)
    for file in found[1] if found is not None else ():
        assert found is not None
        # Bytes of a name that are not UTF-8, which Python keeps as lone surrogates, are written as \\xff.
        path = os.fsencode(file.path).decode(errors="backslashreplace")
        async for piece in _read_file(found[0], file, f"files/{chat_id}/{path}"):
            yield piece


async def _read_file(workspace: Workspace, file: WorkspaceFile, name: str) -> AsyncGenerator[data_pb2.ArchivePiece]:
    with ExitStack() as stack:
        try:
            fd = await asyncio.to_thread(lambda: stack.enter_context(workspace.open_file(file.path)))
        except (OSError, ValueError):  # it has gone, or is something else by now
            return
        status = await asyncio.to_thread(os.fstat, fd)
        size = status.st_size
        piece = data_pb2.ArchivePiece(name=name, size_bytes=size, modified_at=status.st_mtime_ns // 1_000_000)
        at = 0
        while True:
            wanted = min(PIECE_BYTES, size - at)
            data = await asyncio.to_thread(os.pread, fd, wanted, at) if wanted else b""
            piece.data = data.ljust(wanted, b"\0")  # a file that was cut meanwhile has the size that was said
            at += wanted
            yield piece
            if at >= size:
                return
            piece = data_pb2.ArchivePiece()


def _read_records(folders: ChatFolders, chat_id: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for path in sorted((folders.effects.root / chat_id).glob("*.json")):
        with suppress(FileNotFoundError):
            found.append((f"calls/{chat_id}/{path.name}", path.read_bytes()))
    return found


async def _cut(name: str, data: bytes) -> AsyncGenerator[data_pb2.ArchivePiece]:
    first = data_pb2.ArchivePiece(name=name, size_bytes=len(data), modified_at=now_ms(), data=data[:PIECE_BYTES])
    yield first
    for start in range(PIECE_BYTES, len(data), PIECE_BYTES):
        yield data_pb2.ArchivePiece(data=data[start : start + PIECE_BYTES])
