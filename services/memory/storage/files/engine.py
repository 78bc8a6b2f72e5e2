from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from services.memory.storage.engine import Engine
from services.memory.storage.files.agents.versions import FileAgentVersions, VersionFolder
from services.memory.storage.files.blobs import BlobFolder, FileBlobs
from services.memory.storage.files.chats import FileChats
from services.memory.storage.files.commits import Commits
from services.memory.storage.files.disk_room import PROBE_S, DiskRoom
from services.memory.storage.files.index import Index
from services.memory.storage.files.index_recovery import SPEND, OpenIndex, open_index, read_change
from services.memory.storage.files.keys import FileKeys, KeyFolder
from services.memory.storage.files.leases import FileLeases
from services.memory.storage.files.outbox import FileWebhooks, Outbox
from services.memory.storage.files.records import RecordFolder
from services.memory.storage.files.schedules import SCHEDULES, FileSchedules
from services.memory.storage.files.spend.ledger import SpendLedger
from services.memory.storage.files.tables.leases import LeaseTable
from services.memory.storage.files.user_facts import FactLog, FileUserFacts
from services.memory.storage.gates.watch import GateWatch
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.runtime.clock import now_ms
from services.runtime.ending import guard_task

if TYPE_CHECKING:
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
) -> AsyncGenerator[Engine]:
    """Open the chats of `disk`; leaving the block commits what waits.

    Leases end by `clock`, in Unix milliseconds. A full disk is looked at every `probe_s`.
    """
    outbox = await asyncio.to_thread(Outbox, disk.folder)
    opened, room = await _open_index(disk, outbox), DiskRoom(disk.folder, probe_s)
    gate_watch = GateWatch()
    index = Index(
        opened.database, opened.reader, lambda chat_id: read_change(disk, chat_id), room, clock, outbox, gate_watch
    )
    table = LeaseTable(index, opened.leases, opened.generation_floor, clock)
    ledger = SpendLedger(disk.folder / SPEND)
    commits = Commits(disk, room, index, table, ledger)
    fact_log = await asyncio.to_thread(FactLog, disk.folder / "facts", room)
    schedule_folder = await asyncio.to_thread(RecordFolder, disk.folder / "schedules", room, SCHEDULES)
    version_folder = await asyncio.to_thread(VersionFolder, disk.folder / "agents" / "versions", room)
    key_folder = await asyncio.to_thread(KeyFolder, disk.folder / "keys", room)
    facts, blobs = FileUserFacts(fact_log), BlobFolder(disk.folder / "blobs")
    schedules = FileSchedules(schedule_folder)
    chats = FileChats(disk, room, blobs, index, commits, cache_bytes_max)
    leases = FileLeases(chats, commits, table)
    writing = guard_task(asyncio.create_task(commits.run_commits()))
    indexing = guard_task(asyncio.create_task(index.run_writes()))
    probing = guard_task(asyncio.create_task(room.run_probes()))
    watching = guard_task(asyncio.create_task(gate_watch.run_reads(index.find_gates)))
    try:
        yield Engine(
            chats,
            index,
            index,
            gate_watch,
            index,
            leases,
            FileBlobs(blobs, index, room),
            FileAgentVersions(version_folder),
            facts,
            schedules,
            FileKeys(key_folder),
            FileWebhooks(outbox, index, room),
            NoPeers(),
            lambda: not room.is_full,
        )
    finally:
        watching.cancel()
        commits.close()
        await writing
        index.close()
        await indexing
        probing.cancel()
        fact_log.close()
        ledger.close()
        schedule_folder.close()
        key_folder.close()
        outbox.close()


async def _open_index(disk: Disk, outbox: Outbox) -> OpenIndex:
    stopped = threading.Event()
    indexing = asyncio.create_task(asyncio.to_thread(open_index, disk, stopped, outbox))
    try:
        return await asyncio.shield(indexing)
    except asyncio.CancelledError:
        stopped.set()
        (await indexing).close()
        outbox.close()
        raise
