"""Starting on a folder of logs: only those that differ from the index in length or modification time are read.

The last changed ones are read before anything is served; the rest forms the backlog.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import structlog

from headrace.errors import HeadraceError
from services.memory.encryption.keyring import NO_KEYS
from services.memory.importing.v3 import OlderLog, convert_older_log
from services.memory.log import recovery
from services.memory.log.chat import Chat
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import encrypt_log, name_older_log
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.files.blobs import BlobFolder
from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.files.indexing.database import PLAIN_ROWS, IndexDatabase, OtherVersion
from services.memory.storage.files.indexing.spend import read_deleted_spend
from services.memory.storage.index_rows import IndexChange, make_full_change
from services.memory.storage.leases import Lease
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.outbox import Outbox

INDEX_NAME = "index.sqlite"

SPEND = "spend"
"""Folder with the spending of deleted chats, next to the logs."""

START_LOGS_MAX, START_BYTES_MAX = 500, 8 << 20
"""Maximum logs and bytes read before anything is served; the last changed ones include the unfinished runs, which
continue immediately. A chat of 4 KB costs 0.35 ms of CPU in a batch of a thousand and 0.7 alone (2026-11)."""

SHOWN_MAX = 20
"""Maximum unreadable lines listed in a log record."""

log = structlog.get_logger()


class OpenIndex(NamedTuple):
    """The parts of the index that a start needs, read before anything is served."""

    database: IndexDatabase
    reader: IndexDatabase
    leases: dict[str, Lease]
    """Held leases, by run."""
    generation_floor: int
    backlog: Mapping[str, tuple[int, int]]
    """Length and modification time of the logs that the index lacks, by chat, last changed first."""

    def close(self) -> None:
        self.reader.close()
        self.database.close()


def open_index(
    disk: Disk, outbox: Outbox | None = None, start_logs_max: int = START_LOGS_MAX, rows: RowCipher = PLAIN_ROWS
) -> OpenIndex:
    """Bring the index of `disk`, and `outbox`, closer to the logs, and repair logs cut by a crash.

    Raises:
        OSError: They cannot be read or written now.
    """
    path, logs = disk.folder / INDEX_NAME, disk.list_logs()
    try:
        try:
            database = open_database(path, is_first=not logs, rows=rows)
            return _read_index(database, disk, logs, outbox, start_logs_max, rows)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            log.warning("index damaged", error=str(error))
            database = create_database(path, is_first=not logs, rows=rows)
            return _read_index(database, disk, logs, outbox, start_logs_max, rows)
    except sqlite3.DatabaseError as error:
        raise OSError(f"{path}: {error}") from error


def _read_index(
    database: IndexDatabase,
    disk: Disk,
    logs: Mapping[str, tuple[int, int]],
    outbox: Outbox | None,
    start_logs_max: int,
    rows: RowCipher,
) -> OpenIndex:
    try:
        backlog = catch_up(database, disk, logs, outbox, start_logs_max, rows.keys)
        leases = {run_id: Lease(*lease) for run_id, lease in database.list_leases().items()}
        return OpenIndex(database, database.open_reader(), leases, database.get_generation_floor(), backlog)
    except BaseException:
        database.close()
        raise


def open_database(path: Path, *, is_first: bool, rows: RowCipher = PLAIN_ROWS) -> IndexDatabase:
    """Open the index at `path`, a new one if there is none of this version; see create_database.

    Raises:
        sqlite3.DatabaseError: It cannot be read.
    """
    if not path.exists():
        return create_database(path, is_first=is_first, rows=rows)
    try:
        return IndexDatabase(path, rows=rows)
    except OtherVersion as error:
        log.warning("index made anew", reason=str(error))
        return create_database(path, is_first=is_first, rows=rows)


def create_database(path: Path, *, is_first: bool, rows: RowCipher = PLAIN_ROWS) -> IndexDatabase:
    """Create an empty index in place of any file at `path`.

    Without `is_first`, generations begin with the time, which is higher than any given before.
    """
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    deleted = read_deleted_spend(path.parent / SPEND, path.parent, rows.keys)
    floor = 0 if is_first else now_ms()
    return IndexDatabase(path, is_new=True, generation_floor=floor, deleted=deleted, rows=rows)


def catch_up(
    database: IndexDatabase,
    disk: Disk,
    logs: Mapping[str, tuple[int, int]],
    outbox: Outbox | None,
    start_logs_max: int,
    keys: Keyring = NO_KEYS,
) -> dict[str, tuple[int, int]]:
    """Apply the last changed of the `logs` (length and time, by chat) that `database` has not seen in this state;
    return the others, last changed first."""
    seen = database.list_logs()
    database.apply_changes(chat_id for chat_id in seen if chat_id not in logs)
    changed = [chat_id for chat_id in logs if seen.get(chat_id) != logs[chat_id]]
    changed.sort(key=lambda chat_id: (-logs[chat_id][1], chat_id))
    if changed:  # after a crash: data that is read, served and acknowledged again must be durable
        disk.sync_all()
    first = set(_choose_first(changed[:start_logs_max], logs))
    changes = read_changes(disk, [chat_id for chat_id in changed if chat_id in first], keys)
    with closing(changes if outbox is None else outbox.record(changes)) as recorded:
        database.apply_changes(recorded)
    return {chat_id: logs[chat_id] for chat_id in changed if chat_id not in first}


def _choose_first(changed: Sequence[str], logs: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    size_bytes = 0
    for chat_id in changed:
        size_bytes += logs[chat_id][0]
        if size_bytes > START_BYTES_MAX:
            return
        yield chat_id


def read_changes(disk: Disk, chat_ids: Iterable[str], keys: Keyring = NO_KEYS) -> Generator[IndexChange]:
    """Read logs that no task has opened yet as changes, and repair those cut by a crash."""
    for chat_id in chat_ids:
        try:
            chat = load_chat(disk, chat_id, keys)
            if chat.log or chat.info.is_damaged:
                keys.prepare_now(chat.info.owner.tenant)
                yield make_full_change(chat, disk.get_mtime_ns(chat_id))
        except (HeadraceError, OSError) as error:
            # One log must not prevent serving the others; a request for its chat gets the error.
            log.error("log cannot be read", chat_id=chat_id, error=str(error))
        except Exception:
            log.exception("log cannot be read", chat_id=chat_id)


def load_chat(disk: Disk, chat_id: str, keys: Keyring = NO_KEYS) -> Chat:
    """Load a chat from its log, repaired if a crash cut it and converted if it is V3; empty if there is no log."""
    with disk_errors(chat_id):
        try:
            data = disk.read_log(chat_id)
        except FileNotFoundError:
            return Chat.empty(chat_id)
        reading = recovery.read_log(data, chat_id, keys)
        reading.reader.check()
        if data and not reading.lines and (older := convert_older_log(chat_id, data)):
            data = _replace_older_log(disk, chat_id, data, older, keys)
            reading = recovery.read_log(data, chat_id, keys)
        elif reading.is_damaged:
            log.error("log damaged", chat_id=chat_id, lines_read=len(reading.lines), size_bytes=len(data))
        elif reading.whole_bytes < len(data):
            tail = data[reading.whole_bytes :]
            disk.set_aside(chat_id, reading.whole_bytes, tail)
            log.warning("damaged tail set aside", chat_id=chat_id, size_bytes=len(tail))
    return recovery.make_chat(chat_id, data, reading, keys)


def _replace_older_log(disk: Disk, chat_id: str, data: bytes, older: OlderLog, keys: Keyring) -> bytes:
    """Replace a V3 log by its conversion, and return that."""
    tenant = read_chat(chat_id, older.log).info.owner.tenant
    for blob in older.blobs:
        BlobFolder(disk.folder / "blobs", keys).put_blob(chat_id, blob, tenant)
    log_data = encrypt_log(chat_id, older.log, keys, tenant)
    before = keys.encrypt(tenant, name_older_log(chat_id), data) if keys.encrypts else data
    disk.replace_log(chat_id, before, log_data)
    log.warning("older log converted", chat_id=chat_id, lines_read=older.lines)
    if older.unreadable:
        lines = older.unreadable
        log.error("older log has unreadable lines", chat_id=chat_id, count=len(lines), line_numbers=lines[:SHOWN_MAX])
    return log_data


def read_change(disk: Disk, chat_id: str, keys: Keyring = NO_KEYS) -> IndexChange | str:
    """Read a log as a change of the index; return the chat's id if the log is gone. The chat may be in use."""
    try:
        mtime_ns, data = disk.get_mtime_ns(chat_id), disk.read_log(chat_id)
    except FileNotFoundError:
        return chat_id
    return make_full_change(read_chat(chat_id, data, keys), mtime_ns)
