"""Webhooks and their deliveries in a SQLite file next to the index, created with the first webhook. Blocks.

Unlike the index it cannot be built from the logs. Events are in the file before the index has their lines, so that a
start after a crash detects missing ones and derives them again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator, Iterable
from threading import Lock
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.storage.files.sqlite import database_errors, execute, number_marks, open_file, transaction
from services.memory.storage.index_rows import IndexChange
from services.memory.storage.records.deliveries import LIVE, Webhooks, list_values, make_fan_out
from services.memory.storage.records.webhooks import KEPT_MS
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.event_rows import EventChange
    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.files.indexing.index import Index
    from services.memory.storage.records.webhooks import Webhook
    from services.memory.storage.sql import Row, Statement

NAME = "webhooks.sqlite"

AGE_MS_MAX = KEPT_MS - 24 * 3_600_000
"""Maximum age of events derived again; deliveries in that time are still known."""

VERSION = 1

_TABLES = """
CREATE TABLE webhooks(
    webhook_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, version INTEGER NOT NULL, types TEXT NOT NULL,
    agents TEXT NOT NULL, is_paused INTEGER NOT NULL, is_full INTEGER NOT NULL, matches_from INTEGER NOT NULL,
    created_at INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE deliveries(
    webhook_id TEXT NOT NULL, event_id TEXT NOT NULL, tenant TEXT NOT NULL, type TEXT NOT NULL, subject TEXT NOT NULL,
    run_id TEXT NOT NULL, gate_id TEXT NOT NULL, agent_key TEXT NOT NULL, occurred_at INTEGER NOT NULL,
    payload TEXT NOT NULL, state TEXT NOT NULL, place INTEGER NOT NULL, began_at INTEGER NOT NULL,
    next_at INTEGER NOT NULL, tries INTEGER NOT NULL, closed_at INTEGER NOT NULL, status INTEGER NOT NULL,
    failure TEXT NOT NULL, PRIMARY KEY(webhook_id, event_id));
CREATE INDEX deliveries_by_place ON deliveries(place);
CREATE INDEX deliveries_due ON deliveries(webhook_id, next_at) WHERE state = 'waiting';
CREATE INDEX deliveries_in_order ON deliveries(webhook_id, subject, place, event_id) WHERE state = 'waiting';
CREATE INDEX deliveries_next ON deliveries(next_at) WHERE state IN ('waiting', 'scheduled');
CREATE INDEX deliveries_of_gates ON deliveries(run_id, gate_id) WHERE state = 'scheduled';
CREATE INDEX deliveries_shown ON deliveries(webhook_id, occurred_at, event_id);
CREATE INDEX deliveries_ended ON deliveries(closed_at) WHERE closed_at > 0;
CREATE INDEX deliveries_open ON deliveries(state) WHERE state IN ('waiting', 'dead');
"""

_ADD_INDEX = "CREATE INDEX IF NOT EXISTS deliveries_of_run ON deliveries(tenant, run_id)"
"""Files of earlier programs lack it."""

_WHAT = "the webhooks of the store"

_PLACE = "(SELECT coalesce(max(place), 0) + 1 FROM deliveries)"

_FAN_OUT = number_marks(make_fan_out(_PLACE))

_WITHDRAW = "DELETE FROM deliveries WHERE run_id = ? AND gate_id = coalesce(?, gate_id) AND state = 'scheduled'"


class Outbox:
    """The file, used in any thread."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the file cannot be read."""
        self._path = folder / NAME
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self.wake: Callable[[], None] = lambda: None
        """Called, in any thread, when deliveries have been stored."""
        if self._path.exists():
            try:
                self._db = self._open()
            except sqlite3.Error as error:
                raise OSError(f"{self._path}: {error}") from error

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()

    def run(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in one transaction, on disk on return."""
        with self._lock, database_errors(_WHAT):
            if self._db is None:
                if not any("INSERT INTO webhooks" in text for text, _ in statements):
                    return [[] for _ in statements]
                self._db = self._open()
            with transaction(self._db):
                return [execute(self._db, *statement) for statement in statements]

    def scrub(self) -> None:
        """Clear traces of deleted rows in the file."""
        with self._lock, database_errors(_WHAT):
            if self._db is not None:
                self._db.execute("VACUUM")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def record(self, changes: Iterable[IndexChange | str]) -> Generator[IndexChange | str]:
        """Pass changes through, storing their events; on disk once the last has passed."""
        if self._db is None:
            yield from changes
            return
        with self._lock:
            count = self._db.total_changes
            with transaction(self._db):
                for change in changes:
                    if isinstance(change, IndexChange) and change.events:
                        self._put_events(self._db, change.events)
                    yield change
            if self._db.total_changes > count:
                self.wake()

    def _put_events(self, database: sqlite3.Connection, change: EventChange) -> None:
        oldest_at = now_ms() - AGE_MS_MAX
        for event in change.events:
            if event.committed_at >= oldest_at:
                as_of = event.committed_at if change.is_recovered else LIVE
                database.execute(_FAN_OUT, (*list_values(event), as_of))
        database.executemany(_WITHDRAW, change.withdrawn)

    def _open(self) -> sqlite3.Connection:
        database = open_file(self._path)
        try:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={VERSION}; COMMIT;")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"version {version}, not {VERSION}")
            database.execute(_ADD_INDEX)
        except BaseException:
            database.close()
            raise
        return database


class _OutboxSql:
    """The file as SQL of records, used on the event loop."""

    state = None

    def __init__(self, outbox: Outbox, room: DiskRoom) -> None:
        self._outbox = outbox
        self._room = room

    async def run(self, *statements: Statement) -> list[list[Row]]:
        def run() -> list[list[Row]]:
            with self._room.noting():
                return self._outbox.run(*statements)

        return await asyncio.to_thread(run)


class FileWebhooks(Webhooks):
    """The webhooks of a folder."""

    def __init__(self, outbox: Outbox, index: Index, room: DiskRoom, keys: Keyring = NO_KEYS) -> None:
        super().__init__(_OutboxSql(outbox, room), _PLACE, keys)
        self._index = index
        loop = asyncio.get_running_loop()
        outbox.wake = lambda: loop.call_soon_threadsafe(self.wake) and None

    async def put(self, record: Webhook, before: int = 0) -> bool:
        # Earlier events belong to earlier webhooks, and a new webhook gets none of them.
        if before:
            self._index.backlog.check_empty("the events before the webhook's change")
        await self._index.flush()
        return await super().put(record, before)
