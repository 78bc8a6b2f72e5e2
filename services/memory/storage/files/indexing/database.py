"""The index as a SQLite file. Everything here blocks, in one thread.

It is built from the logs, and rebuilt if lost or of another version. Only lease generations are in no log; a new file
starts them above any in an earlier file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.encrypted.text_search import TextRow
from services.memory.storage.files.indexing.gates import TABLES as GATE_TABLES
from services.memory.storage.files.indexing.gates import GateTable
from services.memory.storage.files.indexing.spend import (
    GRANT_TABLES,
    SPEND_TABLES,
    ReservationTable,
    SpendTable,
    make_triggers,
)
from services.memory.storage.index_rows import UNCHANGED, ChatEntry, IndexChange, Text, UnfinishedEntry
from services.memory.storage.leases import DUE_MAX, Lease
from services.memory.storage.paging import Page
from services.memory.storage.reservations import BudgetUse, SpendDecision, SpendReservation
from services.memory.storage.run_query import RunEntry, RunQuery
from services.memory.storage.search import fold_text
from services.memory.storage.spend import SpendRow
from services.memory.storage.where import Place
from services.runtime.auth.identity import Identity

VERSION = 18
"""Version of the tables; a file of another version is rebuilt."""

ENCRYPTED_VERSIONS = 1_000_000
"""Added to the version of a file with encrypted texts, so that switching encryption rebuilds it."""

PLAIN_ROWS = RowCipher(NO_KEYS)

WAL_PAGES = 8000
"""Pages of 4 KiB before a checkpoint, which syncs while appends wait for the disk."""

_TABLES = (
    """
CREATE TABLE chats(
    chat_id TEXT PRIMARY KEY, name TEXT NOT NULL, title TEXT NOT NULL,
    first_agent_key TEXT NOT NULL, last_agent_key TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, is_damaged INTEGER NOT NULL,
    tenant TEXT NOT NULL, user TEXT NOT NULL, shared_with TEXT NOT NULL, participants TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX chats_by_place ON chats(tenant, user, -updated_at, chat_id);
CREATE INDEX chats_shared ON chats(tenant, -updated_at, chat_id) WHERE shared_with <> '';
CREATE TABLE runs(
    run_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, agent_key TEXT NOT NULL, started_at INTEGER NOT NULL,
    generation INTEGER NOT NULL, last_seq INTEGER NOT NULL, is_ended INTEGER NOT NULL,
    state TEXT NOT NULL, reason TEXT NOT NULL, updated_at INTEGER NOT NULL, model_calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_nano_usd INTEGER NOT NULL,
    credential TEXT NOT NULL, of_tenant TEXT NOT NULL, of_user TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX runs_by_chat ON runs(chat_id);
CREATE INDEX runs_of_tenant ON runs(of_tenant, started_at, run_id);
CREATE INDEX runs_of_user ON runs(of_tenant, of_user, started_at, run_id);
CREATE INDEX runs_of_agent ON runs(of_tenant, agent_key, started_at, run_id);
CREATE INDEX runs_in_state ON runs(of_tenant, state, started_at, run_id);
CREATE INDEX runs_live_of_tenant ON runs(of_tenant, started_at, run_id) WHERE NOT is_ended;
CREATE INDEX runs_unfinished ON runs(started_at) WHERE NOT is_ended;
CREATE TABLE leases(
    run_id TEXT PRIMARY KEY, owner TEXT NOT NULL, generation INTEGER NOT NULL, expires_at INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE INDEX leases_owned ON leases(owner) WHERE owner <> '';
CREATE INDEX leases_due ON leases(expires_at) WHERE owner = '';
CREATE TABLE floor(generation INTEGER NOT NULL);
CREATE TABLE texts(
    id INTEGER PRIMARY KEY, chat_id TEXT NOT NULL, n INTEGER NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL,
    tenant TEXT NOT NULL, user_name TEXT NOT NULL, text TEXT NOT NULL, folded TEXT NOT NULL,
    UNIQUE(chat_id, n));
CREATE INDEX texts_of_user ON texts(tenant, user_name, id);
"""
    + GATE_TABLES
    + SPEND_TABLES
    + ";".join([*make_triggers(), ""])
    + GRANT_TABLES
)

_UNFINISHED = """
SELECT chat_id, run_id, agent_key, max(runs.generation, ifnull(leases.generation, 0)), last_seq,
    ifnull(owner, ''), ifnull(expires_at, 0), of_tenant, of_user, user
"""

_LIST_OF_CHAT = f"""
{_UNFINISHED} FROM runs JOIN chats USING (chat_id) LEFT JOIN leases USING (run_id)
WHERE runs.chat_id = :chat_id AND NOT is_ended AND NOT is_damaged
    AND (:expired_at IS NULL OR ifnull(expires_at, 0) <= :expired_at) ORDER BY started_at
"""

_LIST = f"""
WITH found AS (
    SELECT run_id FROM leases WHERE owner <> '' AND (:expired_at IS NULL OR expires_at <= :expired_at)
    UNION ALL SELECT run_id FROM leases WHERE owner = '' AND expires_at = 0
    UNION ALL SELECT * FROM (
        SELECT run_id FROM leases CROSS JOIN runs USING (run_id) JOIN chats USING (chat_id)
        WHERE owner = '' AND expires_at BETWEEN 1 AND :now AND NOT is_ended AND NOT is_damaged
        ORDER BY expires_at LIMIT :due_max))
{_UNFINISHED} FROM found CROSS JOIN leases USING (run_id) JOIN runs USING (run_id) JOIN chats USING (chat_id)
WHERE NOT is_ended AND NOT is_damaged ORDER BY started_at
"""
"""Skips parked runs that are not due: every unfinished run has a row in leases, with an index for each part."""

_ADD_NO_LEASE = "INSERT OR IGNORE INTO leases VALUES (?, '', 0, 0)"


_USERS = """
SELECT user FROM chats WHERE tenant = ? UNION SELECT of_user FROM runs WHERE of_tenant = ?
UNION SELECT user_name FROM spend_sums WHERE tenant = ? AND scope = 'user'
"""


class OtherVersion(Exception):
    """The file has the tables of another version."""


class IndexDatabase:
    def __init__(
        self,
        path: Path,
        *,
        is_new: bool = False,
        is_reader: bool = False,
        generation_floor: int = 0,
        deleted: Iterable[SpendRow] = (),
        rows: RowCipher = PLAIN_ROWS,
    ) -> None:
        """Open `path`. With `is_new` create its tables, with the spending of `deleted` chats, and lease generations
        above `generation_floor`. A reader does not wait for locks. `rows` encrypts its texts.

        Raises:
            sqlite3.DatabaseError, OtherVersion: The file is not a current index.
        """
        self._path = path
        self._rows = rows
        wanted = VERSION + (ENCRYPTED_VERSIONS if rows.keys.encrypts else 0)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.gates, self.spend = GateTable(self._db, rows), SpendTable(self._db)
        self._grants = ReservationTable(self._db)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            if is_new:
                self._db.executescript(f"BEGIN; {_TABLES}")
                self._db.execute("INSERT INTO floor VALUES (?)", (generation_floor,))
                self.spend.add_rows("", deleted)
                self._db.execute(f"PRAGMA user_version={wanted}")
                self._db.execute("COMMIT")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version != wanted:
                raise OtherVersion(f"version {version}, not {wanted}")
            if is_reader:
                self._db.execute("PRAGMA busy_timeout=0")
            else:
                # If a file cannot be opened for writing, SQLite opens it for reading, and reports that only at the
                # first write.
                self._db.execute("DELETE FROM floor WHERE 0")
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def open_reader(self) -> IndexDatabase:
        """Open another connection, which reads while this one writes, without waiting for locks."""
        return IndexDatabase(self._path, is_reader=True, rows=self._rows)

    def list_logs(self) -> dict[str, tuple[int, int]]:
        rows = self._db.execute("SELECT chat_id, size_bytes, mtime_ns FROM chats")
        return {chat_id: (size_bytes, mtime_ns) for chat_id, size_bytes, mtime_ns in rows}

    def apply_changes(self, changes: Iterable[IndexChange | str]) -> None:
        """Apply changes in order; a plain chat id deletes the chat."""
        with self._transaction():
            self._put_all(changes)

    @contextmanager
    def previewing(self, changes: Iterable[IndexChange | str]) -> Generator[None]:
        """Show the index inside the block as if `changes` were applied; the file does not get them."""
        with self._transaction(end="ROLLBACK"):
            self._put_all(changes)
            yield

    def find_chat(self, chat_id: str) -> ChatEntry | None:
        row = self.find_row(chat_id)
        return self._rows.decrypt_entry(row) if row else None

    def find_row(self, chat_id: str) -> ChatEntry | None:
        """Like find_chat, with stored texts."""
        rows = self._db.execute(f"SELECT {_CHAT} FROM chats WHERE chat_id=?", (chat_id,)).fetchall()
        return ChatEntry(*rows[0]) if rows else None

    def list_page(self, who: Identity, page: Page, *, is_shared: bool) -> tuple[list[ChatEntry], Place | None]:
        rows, after = self.list_rows(who, page, is_shared=is_shared)
        return self._rows.decrypt_entries(rows), after

    def list_rows(self, who: Identity, page: Page, *, is_shared: bool) -> tuple[list[ChatEntry], Place | None]:
        query, values = page.render(_CHAT, who, "user", is_shared=is_shared)
        return page.split(self._db.execute(query.replace("$", "?"), values).fetchall())

    def find_chat_of_run(self, run_id: str) -> str | None:
        row = self._db.execute("SELECT chat_id FROM runs WHERE run_id=?", (run_id,)).fetchone()
        return row[0] if row else None

    def find_run_user(self, run_id: str) -> Identity | None:
        row = self._db.execute("SELECT of_tenant, of_user FROM runs WHERE run_id=?", (run_id,)).fetchone()
        return Identity(*row) if row else None

    def list_unfinished(self, now: int, chat_id: str | None, expired_at: int | None) -> list[UnfinishedEntry]:
        """List unfinished runs, oldest first, except those in damaged logs, to which no end can be written."""
        values = {"chat_id": chat_id, "expired_at": expired_at, "now": now, "due_max": DUE_MAX}
        return [UnfinishedEntry(*row) for row in self._db.execute(_LIST if chat_id is None else _LIST_OF_CHAT, values)]

    def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], Place | None]:
        joins = "JOIN chats ON chats.chat_id = page.chat_id LEFT JOIN leases USING (run_id)"
        statement, values = query.render(joins, "chat_id IN ({})", "page.chat_id", "chats.user")
        return query.split(self._db.execute(statement.replace("$", "?"), values).fetchall())

    def reserve_spend(self, reservation: SpendReservation) -> SpendDecision | None:
        with self._transaction():
            return self._grants.reserve_spend(reservation)

    def measure_uses(self, reservation: SpendReservation) -> list[BudgetUse]:
        return self._grants.measure_uses(reservation)

    def list_unchanged(self, updated_at: int, after: tuple[int, str] | None) -> list[ChatEntry]:
        rows = self._db.execute(_UNCHANGED, (updated_at, *(after or (0, ""))))
        return [ChatEntry(*row) for row in rows]

    def get_generation_floor(self) -> int:
        """Return the number above which new leases' generations start.

        Raises:
            sqlite3.DatabaseError: The file lacks it, because a release up to 0.1 was stopped while it built the index.
        """
        floor = self._db.execute("SELECT max(generation) FROM floor").fetchone()[0]
        if floor is None:
            raise sqlite3.DatabaseError("the index was not made to its end")
        return floor

    def list_leases(self) -> Mapping[str, tuple[str, int, int]]:
        rows = self._db.execute("SELECT run_id, owner, generation, expires_at FROM leases")
        return {run_id: (owner, generation, expires_at) for run_id, owner, generation, expires_at in rows}

    def put_leases(self, leases: Mapping[str, Lease]) -> None:
        """Store leases by run, on disk on return."""
        rows = [(run_id, lease.owner, lease.generation, lease.expires_at) for run_id, lease in leases.items()]
        self._db.execute("PRAGMA synchronous=FULL")
        try:
            with self._transaction():
                self._db.executemany("REPLACE INTO leases VALUES (?, ?, ?, ?)", rows)
        finally:
            self._db.execute("PRAGMA synchronous=NORMAL")

    def fetch(self, statement: str, values: list[Any]) -> list[Any]:
        return self._db.execute(statement.replace("$", "?"), values).fetchall()

    def list_users(self, tenant: str) -> list[str]:
        """List all users named in the tenant's chats, runs and sums."""
        return [row[0] for row in self._db.execute(_USERS, (tenant, tenant, tenant))]

    def scrub(self) -> None:
        """Clear traces of deleted rows."""
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def list_encrypted_texts(self, owner: Identity, kinds: list[str], before: int, count: int) -> list[TextRow]:
        """List the owner's encrypted texts before a place, newest first."""
        marks = ",".join("?" * len(kinds))
        query = (
            f"SELECT id, chat_id, title, run_id, kind, text FROM texts JOIN chats USING (chat_id)"
            f" WHERE id < ? AND kind IN ({marks}) AND texts.tenant = ? AND user_name = ? ORDER BY id DESC LIMIT ?"
        )
        return [TextRow(*row) for row in self._db.execute(query, (before, *kinds, owner.tenant, owner.user, count))]

    def clear_logs(self) -> None:
        """Delete everything that logs can restore; leases are kept."""
        with self._transaction():
            for table in ("chats", "runs", "texts", "gates", "gate_grants"):
                self._db.execute(f"DELETE FROM {table}")
            self.spend.clear_logs()

    def _put_all(self, changes: Iterable[IndexChange | str]) -> None:
        together: list[IndexChange] = []
        chats: set[str] = set()
        for change in changes:
            chat_id = change if isinstance(change, str) else change.chat.chat_id
            if isinstance(change, str) or change.is_whole:
                if chat_id in chats:
                    self._put_changes(together)
                    together, chats = [], set()
                made = self._db.execute("SELECT created_at FROM chats WHERE chat_id = ?", (chat_id,)).fetchone()
                # Of a chat that was deleted and made again, the first may never have been written.
                if isinstance(change, str) or (made is not None and made[0] != change.chat.created_at):
                    self.spend.retire_chat(chat_id)
                for table in ("texts", "runs", "gates", "gate_grants", "spend", "chats"):
                    self._db.execute(f"DELETE FROM {table} WHERE chat_id=?", (chat_id,))
            if isinstance(change, IndexChange):
                together.append(self._rows.encrypt_change(change))
                chats.add(chat_id)
        self._put_changes(together)

    def _put_changes(self, changes: list[IndexChange]) -> None:
        # Rows of a chat or run that changes more than once are written once.
        chats = {change.chat.chat_id: change for change in changes}
        runs = {run.run_id: (change.chat.chat_id, change.chat.owner, run) for change in changes for run in change.runs}
        self._db.executemany(
            f"REPLACE INTO chats VALUES ({','.join('?' * 14)})",
            ((*_columns(change.chat), change.size_bytes, change.mtime_ns) for change in chats.values()),
        )
        self._db.executemany(
            f"REPLACE INTO runs VALUES ({','.join('?' * 17)})",
            (
                (run.run_id, chat_id, *_run_columns(run), owner.tenant, run.user or owner.user)
                for chat_id, owner, run in runs.values()
            ),
        )
        leases = ((run_id, lease) for change in changes for run_id, lease in change.leases.items())
        self._db.executemany(
            "REPLACE INTO leases VALUES (?, ?, ?, ?)",
            ((run_id, lease.owner, lease.generation, lease.expires_at) for run_id, lease in leases),
        )
        self._db.executemany(_ADD_NO_LEASE, ((run.run_id,) for _, _, run in runs.values() if not run.is_ended))
        ended = ((run.run_id,) for _, _, run in runs.values() if run.is_ended)
        self._db.executemany("DELETE FROM leases WHERE run_id=?", ended)
        self.gates.put_changes(change.gates for change in changes)
        for change in changes:
            self.spend.add_rows(change.chat.chat_id, change.spend)
        self._put_texts((change.chat.chat_id, change.chat.owner, text) for change in changes for text in change.texts)

    def _put_texts(self, texts: Iterable[tuple[str, Identity, Text]]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO texts(chat_id, n, run_id, kind, tenant, user_name, text, folded)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (chat_id, text.n, text.run_id, text.kind, owner.tenant, owner.user, text.text, fold_text(text.text))
                for chat_id, owner, text in texts
            ),
        )

    def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Like SpendTable.rename_spender; an interrupted and repeated call counts nothing twice."""
        with self._transaction():
            return self.spend.rename_spender(tenant, user, name)

    @contextmanager
    def _transaction(self, *, end: str = "COMMIT") -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:  # SQLite itself ends it on a full disk
                self._db.execute("ROLLBACK")
            raise
        self._db.execute(end)


_CHAT = (
    "chat_id, name, title, first_agent_key, last_agent_key, created_at, updated_at, is_damaged, tenant, user,"
    " shared_with, participants"
)
_UNCHANGED = UNCHANGED.replace("$", "?").format(columns=_CHAT, is_of_chat="runs.chat_id = chats.chat_id")

_columns = attrgetter(*_CHAT.split(", "))
_run_columns = attrgetter(
    *("agent_key", "started_at", "generation", "last_seq", "is_ended", "state", "reason", "updated_at", "model_calls"),
    *("input_tokens", "output_tokens", "cost_nano_usd", "credential"),
)
