"""The spending of deleted chats, in a file next to the logs from which the index is built.

It is written before a chat's log is deleted, in the same way as logs: append, sync, and a tail cut by a crash is set
aside. Blocks.
"""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import structlog

from headrace.errors import HeadraceError
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.recovery import read_chat
from services.memory.storage.files.disk import Disk, list_log_names, read_log_file
from services.memory.storage.reservations import (
    RUN,
    Amount,
    BudgetUse,
    SpendDecision,
    SpendReservation,
    decide_reservation,
    render_use,
)
from services.memory.storage.spend import (
    IS_ZERO,
    SCOPES,
    SUM_NAMES,
    SpendAnswer,
    SpendKey,
    SpendQuery,
    SpendRow,
    SpendSum,
)

log = structlog.get_logger()

_FILE = str(uuid.uuid5(uuid.UUID("3b7f8f0c-3c0e-4f5f-9c1e-6d5a3a0e7c55"), ""))


class _Entry(msgspec.Struct, rename="camel"):
    chat_id: str
    created_at: int
    rows: list[dict[str, Any]]


_ENTRY = msgspec.json.Decoder(_Entry)


class SpendLedger:
    def __init__(self, folder: Path) -> None:
        """Does not open the file, because most services delete no chat."""
        self._folder = folder
        self._lock = Lock()
        self._disk: Disk | None = None
        self._end = 0

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def add_chat(self, chat_id: str, created_at: int, rows: Collection[SpendRow]) -> None:
        """Store a chat's spending, on disk on return."""
        if not rows:
            return
        entry = _Entry(chat_id, created_at, [asdict(key) | asdict(total) for key, total in rows])
        data = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            disk = self._disk = self._disk or self._open()
            disk.append(_FILE, self._end, data)
            self._end += len(data)

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> int:
        """Replace each row by `change` of it, or remove it if that is None; return the number changed."""
        with self._lock:
            try:
                data = read_log_file(self._folder, _FILE)
            except FileNotFoundError:
                return 0
            entries = list(_decode_entries(data))
            changed = 0
            for entry in entries:
                rows = [change(row) for row in entry.rows]
                changed += sum(new != old for new, old in zip(rows, entry.rows, strict=True))
                entry.rows = [row for row in rows if row is not None]
            if changed:
                disk = self._disk = self._disk or self._open()
                data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries if entry.rows)
                disk.rewrite_log(_FILE, data)
                self._end = len(data)
            return changed

    def _open(self) -> Disk:
        disk = Disk(self._folder)
        try:
            data = disk.read_log(_FILE) if _FILE in disk.list_logs() else b""
            self._end = data.rfind(b"\n") + 1
            if self._end < len(data):
                disk.set_aside(_FILE, self._end, data[self._end :])
        except BaseException:
            disk.close()
            raise
        return disk


def read_deleted_spend(folder: Path, logs: Path, keys: Keyring = NO_KEYS) -> list[SpendRow]:
    """Return the rows of all deleted chats, except those still in the folder `logs` because their deletion was
    interrupted.

    A chat created later with the same id is another one.
    """
    try:
        data = read_log_file(folder, _FILE)
    except FileNotFoundError:
        return []
    existing = set(list_log_names(logs))
    # For a chat deleted again after an interruption, only the last entry counts.
    entries = {(entry.chat_id, entry.created_at): entry for entry in _decode_entries(data)}
    return [
        row
        for entry in entries.values()
        if entry.chat_id not in existing or _read_created_at(logs, entry.chat_id, keys) != entry.created_at
        for row in _make_rows(entry)
    ]


def _read_created_at(logs: Path, chat_id: str, keys: Keyring) -> int:
    """Return when a chat was created; 0 if its log cannot be decrypted."""
    try:
        return read_chat(chat_id, read_log_file(logs, chat_id), keys).info.created_at
    except HeadraceError:
        return 0


def _decode_entries(data: bytes) -> Iterator[_Entry]:
    """Yield the readable entries; one bad line must not prevent rebuilding the index."""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            yield _ENTRY.decode(line)
        except ValueError as error:
            log.error("spend of a deleted chat not read", line=number, problem=str(error))


def _make_rows(entry: _Entry) -> Iterator[SpendRow]:
    for row in entry.rows:
        try:
            key, total = ({name: row[name] for name in kind.__dataclass_fields__} for kind in (SpendKey, SpendSum))
            yield msgspec.convert(key, SpendKey), msgspec.convert(total, SpendSum)
        except (KeyError, ValueError) as error:
            log.error("spend of a deleted chat not read", chat_id=entry.chat_id, problem=str(error))


SPEND_TABLES = """
CREATE TABLE spend(
    chat_id TEXT NOT NULL, day INTEGER NOT NULL, tenant TEXT NOT NULL, user_name TEXT NOT NULL,
    agent_key TEXT NOT NULL, model TEXT NOT NULL, credential TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    model_calls INTEGER NOT NULL, cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY(chat_id, day, tenant, user_name, agent_key, model, credential)) WITHOUT ROWID;
CREATE INDEX spend_of_deleted_chats ON spend(tenant, user_name) WHERE chat_id = '';
CREATE TABLE spend_sums(
    tenant TEXT NOT NULL, scope TEXT NOT NULL, day INTEGER NOT NULL, user_name TEXT NOT NULL,
    agent_key TEXT NOT NULL, model TEXT NOT NULL, credential TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    model_calls INTEGER NOT NULL, cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY(tenant, scope, day, user_name, agent_key, model, credential)) WITHOUT ROWID;
CREATE INDEX spend_sums_of_user ON spend_sums(tenant, user_name, day) WHERE scope = 'user';
CREATE INDEX spend_sums_of_key ON spend_sums(tenant, credential, day) WHERE credential <> '';
"""
"""The rows of deleted chats have no chat_id."""


def make_triggers() -> list[str]:
    """Return the triggers that keep the sums of table spend, by scope."""
    changes = {
        "INSERT": ("new", [f"new.{name}" for name in SUM_NAMES]),
        "DELETE": ("old", [f"-old.{name}" for name in SUM_NAMES]),
        "UPDATE": ("new", [f"new.{name} - old.{name}" for name in SUM_NAMES]),
    }
    add = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUM_NAMES)
    triggers: list[str] = []
    for event, (row, sums) in changes.items():
        steps: list[str] = []
        for scope, columns in SCOPES.items():
            keys = [f"{row}.{name}" if name in columns else "''" for name in ("user_name", *_OTHER_COLUMNS)]
            values = ", ".join([f"{row}.tenant, '{scope}', {row}.day", *keys, *sums])
            key = f"tenant, scope, day, user_name, {', '.join(_OTHER_COLUMNS)}"
            insert = f"INSERT INTO spend_sums({key}, {', '.join(SUM_NAMES)}) VALUES ({values})"
            steps.append(f"{insert} ON CONFLICT DO UPDATE SET {add};")
        triggers.append(f"CREATE TRIGGER spend_{event.lower()} AFTER {event} ON spend BEGIN {' '.join(steps)} END")
    return triggers


_OTHER_COLUMNS = ("agent_key", "model", "credential")

_ADD = "ON CONFLICT DO UPDATE SET " + ", ".join(f"{name} = {name} + excluded.{name}" for name in SUM_NAMES)

_PUT = f"INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?) {_ADD}"

_KEY_COLUMNS = ("day", "tenant", "user_name", "agent_key", "model", "credential")
"""In the order of SpendKey's fields."""

_RETIRE = f"""
INSERT INTO spend SELECT '', day, tenant, user_name, agent_key, model, credential, {", ".join(SUM_NAMES)}
FROM spend WHERE chat_id = ? {_ADD}
"""


_RENAME = f"""
INSERT INTO spend SELECT '', day, tenant, ?, agent_key, model, '', {", ".join(f"sum({name})" for name in SUM_NAMES)}
FROM spend WHERE chat_id = '' AND tenant = ? AND user_name = ? GROUP BY day, tenant, agent_key, model {_ADD}
"""


class SpendTable:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def add_rows(self, chat_id: str, rows: Iterable[SpendRow]) -> None:
        self._db.executemany(_PUT, ((chat_id, *astuple(key), *astuple(total)) for key, total in rows))

    def retire_chat(self, chat_id: str) -> None:
        """Keep the spending of a chat that is about to be removed."""
        self._db.execute(_RETIRE, (chat_id,))

    def list_of_chat(self, chat_id: str) -> list[SpendRow]:
        """List a chat's spending."""
        rows = self._fetch(f"SELECT {', '.join((*_KEY_COLUMNS, *SUM_NAMES))} FROM spend WHERE chat_id = $1", [chat_id])
        keys = len(_KEY_COLUMNS)
        return [(SpendKey(*row[:keys]), SpendSum(*row[keys:])) for row in rows]

    def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Rename the user in the spending of deleted chats, and remove the API keys from it; return the rows."""
        self._db.execute(_RENAME, (name, tenant, user))
        return self._delete_retired("tenant = ? AND user_name = ?", tenant, user)

    def delete_retired(self, tenant: str) -> int:
        """Delete the spending of a tenant's deleted chats."""
        return self._delete_retired("tenant = ?", tenant)

    def _delete_retired(self, where: str, *values: str) -> int:
        deleted = self._db.execute(f"DELETE FROM spend WHERE chat_id = '' AND {where}", values).rowcount
        # No names are left of sums that have nothing.
        self._db.execute(f"DELETE FROM spend_sums WHERE scope = 'user' AND {where} AND {IS_ZERO}", values)
        return deleted

    def clear_logs(self) -> None:
        """Delete everything that logs can restore."""
        self._db.execute("DELETE FROM spend WHERE chat_id <> ''")

    def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        total = self._fetch(*query.render_total())[0]
        return SpendAnswer.from_rows(query, self._fetch(*query.render()) if query.columns else (), total)

    def _fetch(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        return self._db.execute(re.sub(r"\$(\d+)", r"?\1", statement), values).fetchall()


GRANT_TABLES = """
CREATE TABLE grants(
    run_id TEXT PRIMARY KEY, nano_usd INTEGER NOT NULL, tokens INTEGER NOT NULL, agents TEXT NOT NULL) WITHOUT ROWID;
"""

_SOURCE = "grants JOIN runs USING (run_id) LEFT JOIN leases USING (run_id)"

_CLEAN = """
DELETE FROM grants WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = grants.run_id AND NOT is_ended)
"""


class ReservationTable:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def reserve_spend(self, reservation: SpendReservation) -> SpendDecision | None:
        """Decide a claim and store the grant; None if the tenant has no such active run. The caller holds the
        transaction."""
        self._db.execute(_CLEAN)
        charged = self._db.execute(_number(RUN), (reservation.run_id, reservation.tenant)).fetchone()
        if charged is None:
            return None
        decision = decide_reservation(reservation, Amount(*charged), self.measure_uses(reservation))
        if (grant := decision.granted) is not None:
            row = (reservation.run_id, grant.nano_usd, grant.tokens, reservation.agents)
            self._db.execute("REPLACE INTO grants VALUES (?,?,?,?)", row)
        return decision

    def measure_uses(self, reservation: SpendReservation) -> list[BudgetUse]:
        """Return the usage of each budget of the claim, without its run's own grant."""
        uses: list[BudgetUse] = []
        for budget in reservation.budgets:
            statement, values = render_use(reservation, budget, _SOURCE)
            row = self._db.execute(_number(statement), values).fetchone()
            uses.append(BudgetUse(Amount(*row[:2]), Amount(*row[2:])))
        return uses


def _number(statement: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", statement)
