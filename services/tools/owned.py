"""Users' data in this service: found by chat, exported as pieces of an archive, and deleted."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.v1 import data_pb2, tools_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_ms
from services.runtime.files.disk import disk_errors, sync_folder
from services.runtime.rpc.field_rules import is_uuid
from services.tools.execution.effect_records import EffectRecords
from services.tools.interpreter.pool import InterpreterPool
from services.tools.workspace.quota import FILES_MAX
from services.tools.workspace.retention import remove_folder, remove_leftovers
from services.tools.workspace.workspace import Workspace, WorkspaceFile, Workspaces

PIECE_BYTES = 64 * 1024

WHAT = "what is to be erased"


@dataclass(frozen=True, slots=True)
class ChatFolders:
    """The folders of chats in all places."""

    workspaces: Workspaces
    effects: EffectRecords

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders that contain a folder per chat; the one with the owner records comes last."""
        return self.workspaces.root, self.effects.root, self.workspaces.owners.root

    def list_owned(self) -> Iterator[tuple[str, Identity]]:
        """Yield the chats with their owners; those from before owners were recorded belong to the default user."""
        names = {path.name for root in self.roots if root.is_dir() for path in root.iterdir() if is_uuid(path.name)}
        for chat_id in sorted(names):
            owner = self.workspaces.owners.read_owner(chat_id, is_older=True)
            if owner is not None:
                yield chat_id, owner


async def read_owned(
    folders: ChatFolders, owner: Identity, servers: Sequence[str]
) -> AsyncGenerator[data_pb2.ArchivePiece]:
    """Yield files of the owner's workspaces, call records, and the MCP servers at which the owner has authorized
    Headrace."""
    for chat_id, of in await asyncio.to_thread(lambda: list(folders.list_owned())):
        if of != owner:
            continue
        async for piece in _read_workspace(folders, owner, chat_id):
            yield piece
        for path in await asyncio.to_thread(sorted, (folders.effects.root / chat_id).glob("*.json")):
            try:
                data = await asyncio.to_thread(path.read_bytes)
            except FileNotFoundError:
                continue
            for piece in _cut(f"calls/{chat_id}/{path.name}", data):
                yield piece
    lines = b"".join(msgspec.json.encode({"server": server}) + b"\n" for server in servers)
    for piece in _cut("authorizations.jsonl", lines):
        yield piece


async def _read_workspace(folders: ChatFolders, owner: Identity, chat_id: str) -> AsyncGenerator[data_pb2.ArchivePiece]:
    def list_files() -> tuple[Workspace, list[WorkspaceFile]] | None:
        with acting_as(owner):
            try:
                workspace = folders.workspaces.find_workspace(chat_id)
                return workspace, workspace.list_files("", FILES_MAX)
            except OSError:  # there are only call records
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
            piece.data = data.ljust(wanted, b"\0")  # a file truncated in the meantime keeps its announced size
            at += wanted
            yield piece
            if at >= size:
                return
            piece = data_pb2.ArchivePiece()


def _cut(name: str, data: bytes) -> Iterator[data_pb2.ArchivePiece]:
    first = data_pb2.ArchivePiece(name=name, size_bytes=len(data), modified_at=now_ms(), data=data[:PIECE_BYTES])
    yield first
    for start in range(PIECE_BYTES, len(data), PIECE_BYTES):
        yield data_pb2.ArchivePiece(data=data[start : start + PIECE_BYTES])


async def erase_owned(
    folders: ChatFolders,
    interpreters: InterpreterPool,
    forget_tokens: Callable[[str, str, Collection[str]], Awaitable[int]],
    request: tools_pb2.EraseOwnedDataRequest,
) -> tools_pb2.EraseOwnedDataResponse:
    """Delete users' data, each chat's owner record last, so that an interrupted deletion can be repeated.

    `forget_tokens` deletes the tokens of a user, or of a tenant except some users, and returns their number.

    Raises:
        Overloaded: The disk refused.
    """
    counts: Counter[str] = Counter()
    with disk_errors(WHAT, ""):
        for chat_id, owner in await asyncio.to_thread(lambda: list(folders.list_owned())):
            if owner.tenant != request.tenant or request.user not in ("", owner.user):
                continue
            if chat_id not in request.held_chat_ids and owner.user not in request.held_users:
                await interpreters.end_of_chat(chat_id)
                counts += await asyncio.to_thread(_remove_chat, folders, chat_id)
        for redacted in request.redacted:
            counts["call_records"] += await asyncio.to_thread(_remove_records, folders, redacted)
        await asyncio.to_thread(remove_leftovers, folders.roots)
        held = frozenset(request.held_users)
        counts["authorizations"] += await forget_tokens(request.tenant, request.user, held)
    erased = [data_pb2.ErasedItem(name=name, count=count) for name, count in sorted(counts.items()) if count]
    return tools_pb2.EraseOwnedDataResponse(erased=erased)


def _remove_chat(folders: ChatFolders, chat_id: str) -> Counter[str]:
    workspaces, records, owners = folders.roots
    counts = Counter(call_records=len(list((records / chat_id).glob("*.json"))))
    counts["workspaces"] = int((workspaces / chat_id).is_dir())
    for root in (workspaces, records, owners):
        if (root / chat_id).is_dir():
            remove_folder(root / chat_id)
    return counts


def _remove_records(folders: ChatFolders, redacted: data_pb2.ChatRuns) -> int:
    """Delete the call records of some runs of a chat, including partially written ones."""
    folder = folders.effects.root / redacted.chat_id
    runs = [f'"{run_id}/'.encode() for run_id in redacted.run_ids]
    removed = 0
    for path in folder.glob("*"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if any(run in data for run in runs):
            path.unlink(missing_ok=True)
            removed += path.suffix == ".json"
    if removed:
        sync_folder(folder)
    return removed
