""""""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from services.memory.encryption.master_keys import OpenKeys, open_no_keys
from services.memory.log.chat_watch import ChatWatch
from services.memory.storage.audit import AUDIT_TENANT, AuditTrail
from services.memory.storage.encrypted.reencryption import Piece, Rewriting
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.engine import Engine
from services.memory.storage.files.audit import AuditFolder
from services.memory.storage.files.backlog import RunBacklog, run_steps
from services.memory.storage.files.blobs import BlobFolder, FileBlobs
from services.memory.storage.files.chats import FileChats, FileLeases
from services.memory.storage.files.commits import Commits
from services.memory.storage.files.data_keys import FOLDER, FileDataKeys
from services.memory.storage.files.disk import list_log_names
from services.memory.storage.files.disk_room import PROBE_S, DiskRoom
from services.memory.storage.files.erasing import FileEraser
from services.memory.storage.files.indexing.index import Index
from services.memory.storage.files.indexing.index_recovery import (
    SPEND,
    START_LOGS_MAX,
    OpenIndex,
    open_index,
    read_change,
    read_changes,
)
from services.memory.storage.files.indexing.spend import SpendLedger
from services.memory.storage.files.key_uses import FileKeyUses
from services.memory.storage.files.leases import LeaseTable
from services.memory.storage.files.older_records import OLDER, import_older
from services.memory.storage.files.outbox import FileWebhooks, Outbox
from services.memory.storage.files.sqlite import SqliteSql
from services.memory.storage.gates.watch import GateWatch
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.memory.storage.records.stores import TABLES, make_stores
from services.runtime.clock import now_ms
from services.runtime.ending import guard_task, guarding

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk import Disk


class NoPeers:
    def share(self, news: str) -> None:
        pass

    def listen(self, receive: Callable[[str], None]) -> None:
        pass


@asynccontextmanager
async def open_files(
    disk: Disk,
    *,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
    probe_s: float = PROBE_S,
    start_logs_max: int = START_LOGS_MAX,
    run_backlog: RunBacklog = run_steps,
    audit_tenant: str = AUDIT_TENANT,
    open_keys: OpenKeys = open_no_keys,
) -> AsyncGenerator[Engine]:
    """Open the chats of `disk`; leaving the block commits pending writes.

    Leases end by `clock`, in Unix milliseconds. A full disk is checked every `probe_s`. At most `start_logs_max`
    unindexed logs are read before the block is entered; `run_backlog` indexes the others inside it. Records of no
    tenant are in the audit log of `audit_tenant`. `open_keys` creates the keyring for the store's data keys.
    """
    stored_keys = FileDataKeys(disk.folder / FOLDER)
    with ExitStack() as opening:
        keys = await _open(partial(_open_keys, open_keys, stored_keys, disk.folder))
        opening.callback(keys.close)
        room = DiskRoom(disk.folder, probe_s)
        folders = await _open(partial(Folders.open, disk.folder, room, keys))
        opening.callback(folders.close)
        rows, gate_watch, chat_watch = RowCipher(keys), GateWatch(), ChatWatch()
        opened = await _open(partial(open_index, disk, folders.outbox, start_logs_max, rows))
        index = _make_index(disk, opened, room, clock, folders.outbox, gate_watch, rows)
        table = LeaseTable(index, opened.leases, opened.generation_floor, clock)
        commits = Commits(disk, room, index, table, folders.ledger, keys)
        chats = FileChats(disk, room, folders.blobs, index, commits, chat_watch, cache_bytes_max, keys)
        audit = AuditTrail(AuditFolder(disk.folder / "audit", room, clock), clock, audit_tenant)
        leases = FileLeases(chats, commits, table)
        parts = _Parts(
            disk, room, clock, stored_keys, keys, folders, index, gate_watch, chat_watch, chats, leases, audit
        )
        background = (
            keys.run_refreshes(),
            gate_watch.run_reads(index.find_gates),
            audit.run_retries(),
            room.run_probes(),
        )
        async with guarding(*background), _committing(commits, index, run_backlog):
            yield parts.make_engine()


@dataclass(frozen=True, slots=True)
class _Parts:
    disk: Disk
    room: DiskRoom
    clock: Callable[[], int]
    stored_keys: FileDataKeys
    keys: Keyring
    folders: Folders
    index: Index
    gate_watch: GateWatch
    chat_watch: ChatWatch
    chats: FileChats
    leases: FileLeases
    audit: AuditTrail

    def make_engine(self) -> Engine:
        folders, keys, index = self.folders, self.keys, self.index
        records = make_stores(folders.records, keys, FileWebhooks(folders.outbox, index, self.room, keys))

        async def scrub() -> None:
            await folders.records.scrub()
            await asyncio.to_thread(folders.outbox.scrub)

        eraser = FileEraser(self.chats, index, folders.ledger, self.disk, keys, scrub)
        chats = ChatRewriting(keys, self.chats, index, folders.blobs)
        return Engine(
            chats=self.chats,
            index=index,
            gates=index,
            gate_watch=self.gate_watch,
            chat_watch=self.chat_watch,
            spend=index,
            leases=self.leases,
            blobs=FileBlobs(folders.blobs, index, self.room, keys),
            records=records,
            peers=NoPeers(),
            audit=self.audit,
            is_up=lambda: not self.room.is_full,
            eraser=eraser,
            rewriting=Rewriting(keys, self.stored_keys, (chats.list_pieces, *records.sources), scrub),
            key_uses=FileKeyUses(index, self.clock),
        )


@asynccontextmanager
async def _committing(commits: Commits, index: Index, run_backlog: RunBacklog) -> AsyncGenerator[None]:
    """Write queued changes inside the block; leaving it commits pending writes."""
    works = commits.run_commits(), index.run_writes(), run_backlog(index.backlog, index.is_behind, index.flush)
    writing, indexing, taking_in = (guard_task(asyncio.create_task(work)) for work in works)
    try:
        yield
    finally:
        commits.close()
        await writing
        taking_in.cancel()
        await index.backlog.wait_for_taken()
        index.close()
        await indexing


def _make_index(
    disk: Disk,
    opened: OpenIndex,
    room: DiskRoom,
    clock: Callable[[], int],
    outbox: Outbox,
    gate_watch: GateWatch,
    rows: RowCipher,
) -> Index:
    return Index(
        opened.database,
        opened.reader,
        lambda chat_id: read_change(disk, chat_id, rows.keys),
        room,
        clock,
        outbox,
        gate_watch,
        opened.backlog,
        lambda chat_ids: read_changes(disk, chat_ids, rows.keys),
        rows,
    )


class _Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


def _open_keys(open_keys: OpenKeys, stored: FileDataKeys, folder: Path) -> Keyring:
    keys = open_keys(stored)
    keys.open_store(is_empty=keys.is_on and not list_log_names(folder))
    return keys


async def _open(open_in_thread: Callable[[], Opened]) -> Opened:
    """Return an object opened in a thread; if the caller is cancelled, the object is closed once opened."""
    opening = asyncio.create_task(asyncio.to_thread(open_in_thread))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (await opening).close()
        raise


NAME = "records.sqlite"


@dataclass(frozen=True, slots=True)
class Folders:
    outbox: Outbox
    records: SqliteSql
    ledger: SpendLedger
    blobs: BlobFolder
    _open: ExitStack

    @classmethod
    def open(cls, path: Path, room: DiskRoom, keyring: Keyring) -> Folders:
        """Read the folders in `path`. Blocks.

        Raises:
            OSError: They cannot be read or written now.
        """
        with ExitStack() as opening:
            outbox = Outbox(path)
            opening.callback(outbox.close)
            records = SqliteSql(path / NAME, room, TABLES, path / OLDER)
            opening.callback(records.close)
            import_older(path, records, keyring)
            ledger = SpendLedger(path / SPEND)
            opening.callback(ledger.close)
            return cls(outbox, records, ledger, BlobFolder(path / "blobs", keyring), opening.pop_all())

    def close(self) -> None:
        self._open.close()


@dataclass(frozen=True, slots=True)
class ChatRewriting:
    keys: Keyring
    chats: FileChats
    index: Index
    blobs: BlobFolder

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        await self.index.wait_until_complete()
        for chat_id in await self.index.list_chats():
            yield f"chat {chat_id}", partial(self._rewrite, chat_id)

    async def _rewrite(self, chat_id: str) -> bool:
        tenant = (await self.chats.load(chat_id)).info.owner.tenant
        await self.keys.prepare_newest(tenant)
        has_changed = await self.chats.rewrite(chat_id)
        return await asyncio.to_thread(self.blobs.rewrite_blobs, chat_id, tenant) or has_changed
