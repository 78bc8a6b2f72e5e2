"""A kind of record, and the store of its records.

A `Kind` declares the form of a record and its table: a JSON object in the column `data`, encrypted if the store
encrypts, and columns derived from it by which records are found. All operations common to every kind are implemented
here, from its declaration. docs/store-something-new.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from headrace.errors import LogDamaged, Overloaded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.records import decrypt_record, encrypt_record, is_current_record, read_record
from services.runtime.randomness import new_hex

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.sql import Row, Statement, StatementRunner, StoreState
    from services.runtime.auth.identity import Identity

log = structlog.get_logger()

TRIES_MAX = 20
"""Attempts at a change while others change the same record."""


class Record(Protocol):
    """A msgspec.Struct with another version after each stored change."""

    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Record)


def delete_record(record: Any) -> None:
    """Erase a record by deleting it."""


@dataclass(frozen=True)
class Kind(Generic[R]):
    name: str
    """Name of the kind in messages; encrypted data is bound to it."""
    struct: type[R]
    table: str
    columns: Mapping[str, Callable[[R], str | int]]
    """Columns with their types ("tenant text") and functions for their values. The first is the primary key."""
    order: str
    """Columns by which lists are ordered."""
    indexes: Sequence[str] = ()
    """Columns of indexes, each with its condition, if any: "ON keys (tenant)"."""
    where: str = "true"
    """Condition for rows of this kind, if the table holds others too."""
    kept: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns, with their types, that the store itself changes: initially 0, and set in the records it reads."""
    counter: str = ""
    """Table with the last change's revision; records then have a `revision`, the position of their last change."""
    get_tenant: Callable[[R], str] | None = None
    """Returns the tenant whose key encrypts a record; None: not encrypted."""
    plural: str = ""
    """Name of the records in an archive of a user's data, and in the counts of an erasure."""
    get_user: Callable[[R], str] = lambda record: ""
    """Returns the user who owns a record; "": the tenant."""
    get_author: Callable[[R], str] | None = None
    """Returns the user in whose archive a record belongs; None: that of `get_user`."""
    erase: Callable[[R], R | None] | None = None
    """Returns an erased record; None to delete it. Without this function erasures skip the kind."""

    @property
    def names(self) -> list[str]:
        return [column.split()[0] for column in self.columns]

    @property
    def key(self) -> str:
        return self.names[0]

    def encode(self, record: R) -> bytes:
        return msgspec.json.encode(record)

    def list_tables(self) -> list[str]:
        """Return the statements that create the kind's tables if a SQLite file lacks them."""
        columns = [
            f"{column} NOT NULL" for column in (*self.columns, *self.kept.values(), "version bigint", "data blob")
        ]
        if self.counter:
            columns.append("revision bigint NOT NULL")
        columns.append(f"PRIMARY KEY ({self.key})")
        tables = [f"CREATE TABLE IF NOT EXISTS {self.table} ({', '.join(columns)})"]
        for n, index in enumerate(self.indexes, 1):
            tables.append(f"CREATE INDEX IF NOT EXISTS {self.table}_{n} ON {self.table} {index}")
        if self.counter:
            tables += [
                f"CREATE UNIQUE INDEX IF NOT EXISTS {self.table}_by_revision ON {self.table} (revision)",
                f"CREATE TABLE IF NOT EXISTS {self.counter} (last bigint NOT NULL)",
                f"INSERT INTO {self.counter} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {self.counter})",
            ]
        return tables

    def count_changes(self) -> list[Statement]:
        """Return the statement that gives the next change its revision, if the kind has any.

        The counter's row is locked from here on, so that revisions are committed in order.
        """
        return [(f"UPDATE {self.counter} SET last = last + 1", ())] if self.counter else []

    def make_insert(self, values: Sequence[Any]) -> Statement:
        """Return the statement that stores a new record; `values` are those of the columns, version and data."""
        names = [*self.names, "version", "data", *self.kept]
        marks = [*(f"${n}" for n in range(1, len(values) + 1)), *("0" for _ in self.kept)]
        if self.counter:
            source = f"SELECT {', '.join(marks)}, last FROM {self.counter} WHERE true"
            names.append("revision")
        else:
            source = f"VALUES ({', '.join(marks)})"
        insert = f"INSERT INTO {self.table} ({', '.join(names)}) {source} ON CONFLICT DO NOTHING RETURNING version"
        return insert, values

    def make_update(self, values: Sequence[Any], before: int) -> Statement:
        """Return the statement that changes a record with the version `before`."""
        names = [*self.names, "version", "data"]
        changes = [f"{name} = ${n}" for n, name in enumerate(names[1:], 2)]
        if self.counter:
            changes.append(f"revision = (SELECT last FROM {self.counter})")
        where = f"{self.key} = $1 AND version = ${len(values) + 1} AND {self.where}"
        update = f"UPDATE {self.table} SET {', '.join(changes)} WHERE {where} RETURNING version"
        return update, (*values, before)


class Records(Generic[R]):
    """The records of one kind, of all tenants."""

    def __init__(self, sql: StatementRunner, kind: Kind[R], keys: Keyring = NO_KEYS) -> None:
        self.kind = kind
        self._sql, self._keys = sql, keys
        self._decoder = msgspec.json.Decoder(kind.struct)
        kept = (*kind.kept, "revision") if kind.counter else tuple(kind.kept)
        self._kept = kept
        self._select = f"SELECT {', '.join((kind.key, 'data', *kept))} FROM {kind.table} WHERE {kind.where}"

    @property
    def state(self) -> StoreState | None:
        return self._sql.state

    @property
    def has_user_column(self) -> bool:
        return "user_name" in self.kind.names

    async def find(self, record_id: str) -> R | None:
        """Return the record; None without one. Raises KeyUnavailable, LogDamaged."""
        return next(iter(await self.select(f"{self.kind.key} = $1", record_id)), None)

    async def select(self, rest: str, *values: Any, tail: str = "") -> list[R]:
        """List records of one tenant that meet a condition, in the kind's order. Raises KeyUnavailable, LogDamaged."""
        rows = await self._fetch_records(rest, values, tail)
        await self._keys.open_for(row[1] for row in rows)
        return [self._decode(row) for row in rows]

    async def select_readable(self, rest: str = "true", *values: Any, tail: str = "") -> list[R]:
        """List records of several tenants, except damaged ones and those with unavailable keys."""
        return await self.read_each(await self._fetch_records(rest, values, tail))

    async def read_each(self, rows: Sequence[Row]) -> list[R]:
        """Return the readable records of rows (key, data, and the columns that the store keeps)."""
        found: list[R] = []
        for row in await self._keys.select_readable(rows, lambda row: row[1]):
            try:
                found.append(self._decode(row))
            except (LogDamaged, ValueError) as error:
                log.error(f"{self.kind.name} cannot be read", record_id=row[0], error=type(error).__name__)
        return found

    async def list_all(self) -> list[R]:
        """List the readable records of all tenants."""
        return await self.select_readable()

    async def list_changes(self, after_revision: int, count: int, *, may_lag: bool = False) -> list[R]:
        """List `count` records changed after a revision, in the order of their last changes; with `may_lag` the newest
        may be missing."""
        if may_lag and self.state is not None and self.state.revisions[self.kind.counter] == after_revision:
            return []
        return await self.select_readable("revision > $1", after_revision, tail=f"LIMIT {count}")

    async def fetch(self, columns: str, rest: str = "true", *values: Any) -> list[Row]:
        """Return columns of the rows that meet a condition; no key is needed."""
        kind = self.kind
        return (await self._sql.run((f"SELECT {columns} FROM {kind.table} WHERE {kind.where} AND {rest}", values)))[0]

    async def put(self, record: R, before: int = 0) -> bool:
        """Store the record; return False if the stored one does not have the version `before`, where 0 means none."""
        kind = self.kind
        if kind.get_tenant is not None:
            await self._keys.prepare(kind.get_tenant(record))
        values = self.list_values(record, self.encrypt(record))
        change = kind.make_update(values, before) if before else kind.make_insert(values)
        # If its answer is lost the change is repeated, and finds that it was made: the caller reads the record again.
        return bool((await self._sql.run(*self.list_changes_before(record), change))[-1])

    def list_changes_before(self, record: R) -> list[Statement]:
        """Return the statements to run before the record's, in the same transaction."""
        return self.kind.count_changes()

    async def change(self, stored: R, change: Callable[[R], R]) -> R | None:
        """Change a record, again if others change it at the same time; return None if it is gone.

        A record that `change` leaves unchanged, because the request is a repeated one, is written again with its
        version: a database shows changes before it has acknowledged them, and a fail-over may take them back.

        Raises:
            Overloaded: Others keep changing it.
        """
        found: R | None = stored
        for _ in range(TRIES_MAX):
            if found is None:
                return None
            changed = change(found)
            if changed != found:
                changed = msgspec.structs.replace(changed, version=make_version())  # pyright: ignore[reportArgumentType]
            if await self.put(changed, found.version):
                return changed
            found = await self.find(self.get_id(found))
        raise Overloaded(f"the {self.kind.name} is being changed by others; try again later")

    async def keep(self, stored: R) -> R:
        """Write again the record that the same request stored before, and return it. Raises Overloaded."""
        return self.check_kept(await self.change(stored, lambda record: record))

    def check_kept(self, record: R | None) -> R:
        """Return a record that no request deletes; raise Overloaded if a fail-over removed it."""
        if record is None:
            message = f"the database has taken the {self.kind.name} back in a fail-over; try again"
            raise Overloaded(message, retry_after_s=1.0)
        return record

    async def delete(self, record_id: str) -> None:
        await self.delete_where(f"{self.kind.key} = $1", record_id)

    async def delete_where(self, rest: str, *values: Any) -> int:
        """Delete the records that meet a condition and return their number; no key is needed."""
        kind = self.kind
        delete = f"DELETE FROM {kind.table} WHERE {kind.where} AND {rest} RETURNING 1"
        return len((await self._sql.run((delete, values)))[0])

    async def list_unreadable(self, tenant: str) -> list[str]:
        """List the ids of the tenant's records with unavailable keys."""
        if self.kind.get_tenant is None:
            return []
        rows = await self.fetch(f"{self.kind.key}, data", "tenant = $1", tenant)
        readable = {row[0] for row in await self._keys.select_readable(rows, lambda row: row[1])}
        return [row[0] for row in rows if row[0] not in readable]

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        """Yield each record's name, with a function that converts it to its current form."""
        if self.kind.get_tenant is not None:
            for record_id, tenant in await self.fetch(f"{self.kind.key}, tenant"):
                yield f"{self.kind.name} {record_id}", partial(self._rewrite, record_id, tenant)

    async def list_authored(self, author: Identity) -> list[R]:
        """List the records for the archive of a user's data."""
        get_author = self.kind.get_author or self.kind.get_user
        return [
            record for record in await self.select("tenant = $1", author.tenant) if get_author(record) == author.user
        ]

    async def list_users(self, tenant: str) -> set[str]:
        """List the users with records that an erasure changes."""
        kind = self.kind
        if kind.erase is None:
            return set()
        if self.has_user_column:
            return {row[0] for row in await self.fetch("DISTINCT user_name", "tenant = $1", tenant)}
        return {kind.get_user(record) for record in await self._select_erasable(tenant)} - {""}

    async def list_erasable(self, tenant: str, user: str) -> list[str]:
        """List the ids of the records that an erasure changes, of the user, or of the tenant itself for ""."""
        kind = self.kind
        if kind.erase is None:
            return []
        if self.has_user_column:  # no key is needed
            return [row[0] for row in await self.fetch(kind.key, "tenant = $1 AND user_name = $2", tenant, user)]
        own = await self._select_erasable(tenant)
        return [self.get_id(record) for record in own if kind.get_user(record) == user]

    async def _select_erasable(self, tenant: str) -> list[R]:
        erase = self.kind.erase
        assert erase is not None, "a kind that no erasure changes"
        return [record for record in await self.select_readable("tenant = $1", tenant) if erase(record) != record]

    async def erase(self, record_id: str) -> None:
        erase = self.kind.erase
        assert erase is not None, "list_erasable names no record of such a kind"
        if erase is delete_record:
            await self.delete(record_id)
        elif (record := await self.find(record_id)) is not None:
            await self.change(record, lambda stored: erase(stored) or stored)

    async def _rewrite(self, record_id: str, tenant: str) -> bool:
        kind, name = self.kind, self.kind.name
        rows = await self.fetch("data", f"{kind.key} = $1", record_id)
        if not rows or is_current_record(stored := rows[0][0], self._keys, tenant):
            return False
        await self._keys.prepare_newest(tenant)
        await self._keys.open_for([stored])
        data = encrypt_record(name, record_id, decrypt_record(name, record_id, stored, self._keys), self._keys, tenant)
        update = f"UPDATE {kind.table} SET data = $2 WHERE {kind.key} = $1 AND data = $3 RETURNING 1"
        return bool((await self._sql.run((update, (record_id, data, stored))))[0])

    def encrypt(self, record: R) -> bytes:
        kind, data = self.kind, self.kind.encode(record)
        if kind.get_tenant is None:
            return data
        return encrypt_record(kind.name, self.get_id(record), data, self._keys, kind.get_tenant(record))

    def get_id(self, record: R) -> str:
        return str(next(iter(self.kind.columns.values()))(record))

    def list_values(self, record: R, data: bytes) -> tuple[Any, ...]:
        return (*(get(record) for get in self.kind.columns.values()), record.version, data)

    async def _fetch_records(self, rest: str, values: Iterable[Any], tail: str) -> list[Row]:
        statement = f"{self._select} AND {rest} ORDER BY {self.kind.order} {tail}"
        return (await self._sql.run((statement, tuple(values))))[0]

    def _decode(self, row: Row) -> R:
        record_id, data, *kept = row
        record = self._decoder.decode(read_record(self.kind.name, record_id, data, self._keys))
        changes = {name: type(getattr(record, name))(value) for name, value in zip(self._kept, kept, strict=True)}
        return msgspec.structs.replace(record, **changes) if changes else record  # pyright: ignore[reportArgumentType]


def make_version() -> int:
    """Return a number for a changed record that no stored record has had. A counter would not work: a fail-over may
    take a change back, and another change would then reuse its number."""
    return int(new_hex(7), 16) + 1
