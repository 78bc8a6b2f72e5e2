from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from services.memory.encryption.opening import OpenKeys, open_no_keys
from services.memory.storage.audit.trail import AUDIT_TENANT, AuditTrail
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.engine import Engine
from services.memory.storage.files.agents.definitions import AgentFolder, FileStoredAgents
from services.memory.storage.files.agents.versions import FileAgentVersions, VersionFolder
from services.memory.storage.files.api_keys.key_uses import FileKeyUses
from services.memory.storage.files.api_keys.keys import FileKeys, KeyFolder
from services.memory.storage.files.audit.audit_folder import AuditFolder
from services.memory.storage.files.backlog.indexing import RunBacklog, run_steps
from services.memory.storage.files.blobs import BlobFolder, FileBlobs
from services.memory.storage.files.chats import FileChats
from services.memory.storage.files.commits import Commits
from services.memory.storage.files.disk_room import PROBE_S, DiskRoom
from services.memory.storage.files.encryption.data_keys import FOLDER, FileDataKeys
from services.memory.storage.files.encryption.rewriting import FileRewriting
from services.memory.storage.files.index import Index
from services.memory.storage.files.index_recovery import (
    SPEND,
    START_LOGS_MAX,
    OpenIndex,
    open_index,
    read_change,
    read_changes,
)
from services.memory.storage.files.leases import FileLeases
from services.memory.storage.files.outbox import FileWebhooks, Outbox
from services.memory.storage.files.people.erasing import FileEraser, UnreadRecords
from services.memory.storage.files.people.records import FileDataRecords
from services.memory.storage.files.records import RecordFolder
from services.memory.storage.files.schedules import SCHEDULES, FileSchedules
from services.memory.storage.files.spend.ledger import SpendLedger
from services.memory.storage.files.tables.leases import LeaseTable
from services.memory.storage.files.user_facts import FactLog, FileUserFacts
from services.memory.storage.gates.watch import GateWatch
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.memory.storage.people.records import StoredErasure, StoredHold
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
    start_logs_max: int = START_LOGS_MAX,
    run_backlog: RunBacklog = run_steps,
    audit_tenant: str = AUDIT_TENANT,
    open_keys: OpenKeys = open_no_keys,
) -> AsyncGenerator[Engine]:
    """Open the chats of `disk`; leaving the block commits what waits.

    Leases end by `clock`, in Unix milliseconds. A full disk is looked at every `probe_s`. Of logs that the index lacks,
    `start_logs_max` are read before this enters its block, and `run_backlog` has the others taken in meanwhile. What is
    no tenant's is in the audit log of `audit_tenant`. `open_keys` makes the keyring of a store of data
    keys.
    """
    stored_keys = FileDataKeys(disk.folder / FOLDER)
    keys = await asyncio.to_thread(open_keys, stored_keys)
    outbox = await asyncio.to_thread(Outbox, disk.folder)
    opened, room = await _open_index(disk, outbox, start_logs_max, RowCipher(keys)), DiskRoom(disk.folder, probe_s)
    gate_watch = GateWatch()
    index = _make_index(disk, opened, room, clock, outbox, gate_watch, RowCipher(keys))
    table = LeaseTable(index, opened.leases, opened.generation_floor, clock)
    ledger = SpendLedger(disk.folder / SPEND)
    commits = Commits(disk, room, index, table, ledger, keys)
    fact_log = await asyncio.to_thread(FactLog, disk.folder / "facts", room, keys)
    schedule_folder = await asyncio.to_thread(RecordFolder, disk.folder / "schedules", room, SCHEDULES, keys)
    version_folder = await asyncio.to_thread(VersionFolder, disk.folder / "agents" / "versions", room, keys)
    agent_folder = await asyncio.to_thread(AgentFolder, disk.folder / "agents" / "current", room, keys)
    key_folder = await asyncio.to_thread(KeyFolder, disk.folder / "keys", room)
    facts, blobs = FileUserFacts(fact_log, keys), BlobFolder(disk.folder / "blobs", keys)
    schedules = FileSchedules(schedule_folder, keys)
    chats = FileChats(disk, room, blobs, index, commits, cache_bytes_max, keys)
    leases = FileLeases(chats, commits, table)
    unread = UnreadRecords(keys, schedule_folder, agent_folder)
    eraser = FileEraser(chats, index, fact_log, schedules, ledger, outbox, version_folder, disk, unread)
    erasures = await asyncio.to_thread(FileDataRecords, disk.folder / "erasures", room, "erasure", StoredErasure)
    holds = await asyncio.to_thread(FileDataRecords, disk.folder / "holds", room, "hold", StoredHold)
    audit = AuditTrail(AuditFolder(disk.folder / "audit", room, clock), clock, audit_tenant)
    writing, indexing = _run_guarded(commits.run_commits()), _run_guarded(index.run_writes())
    taking_in = _run_guarded(run_backlog(index.backlog, index.is_behind, index.settle))
    probing, retrying = _run_guarded(room.run_probes()), _run_guarded(audit.run_retries())
    webhooks, records = FileWebhooks(outbox, index, room, keys), [schedule_folder, agent_folder]
    rewriting = FileRewriting(keys, stored_keys, chats, index, blobs, fact_log, version_folder, records, webhooks)
    refreshing = _run_guarded(keys.run_refreshes())
    watching = _run_guarded(gate_watch.run_reads(index.find_gates))
    try:
        yield Engine(
            chats,
            index,
            index,
            gate_watch,
            index,
            leases,
            FileBlobs(blobs, index, room, keys),
            FileAgentVersions(version_folder, keys),
            FileStoredAgents(agent_folder, keys),
            facts,
            schedules,
            FileKeys(key_folder),
            webhooks,
            NoPeers(),
            audit,
            lambda: not room.is_full,
            erasures,
            holds,
            eraser,
            rewriting,
            FileKeyUses(index, clock),
        )
    finally:
        watching.cancel()
        refreshing.cancel()
        retrying.cancel()
        commits.close()
        await writing
        taking_in.cancel()
        await index.backlog.wait_for_taken()
        index.close()
        await indexing
        probing.cancel()
        fact_log.close()
        ledger.close()
        schedule_folder.close()
        agent_folder.close()
        key_folder.close()
        erasures.close()
        holds.close()
        outbox.close()
        keys.close()


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


def _run_guarded(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return guard_task(asyncio.create_task(work))


async def _open_index(disk: Disk, outbox: Outbox, start_logs_max: int, rows: RowCipher) -> OpenIndex:
    opening = asyncio.create_task(asyncio.to_thread(open_index, disk, outbox, start_logs_max, rows))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (await opening).close()
        outbox.close()
        raise
