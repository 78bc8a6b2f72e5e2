"""The facts of all users in one table, changed by one writer of a tenant at a time."""

from __future__ import annotations

from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Any

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.facts import decrypt_fact, encrypt_fact
from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.records.user_facts import Fact, MakeChange, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.runtime.auth.identity import Identity

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('headrace facts ' || $1, 0))"

_TEXT_COLUMNS = """fact_id, request_id, updated_at, user_name, text, tenant, scope, agent_key, topic, chat_id, run_id,
    line_n, created_at, ended_at, replaced_by, deleted_at"""

_COLUMNS = f"{_TEXT_COLUMNS}, vector, vector_model"

LAST_COLUMNS = 6
"""Columns from created_at on, which stand in the order of Fact's fields."""

_INSERT = f"""
INSERT INTO facts ({_COLUMNS}, key)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
"""

_STORE = f"""{_INSERT}
ON CONFLICT (fact_id) DO UPDATE SET text = EXCLUDED.text, topic = EXCLUDED.topic, updated_at = EXCLUDED.updated_at,
    chat_id = EXCLUDED.chat_id, run_id = EXCLUDED.run_id, line_n = EXCLUDED.line_n,
    ended_at = EXCLUDED.ended_at, replaced_by = EXCLUDED.replaced_by, deleted_at = EXCLUDED.deleted_at,
    vector = EXCLUDED.vector, vector_model = EXCLUDED.vector_model
"""

_IMPORT = f"{_INSERT} ON CONFLICT DO NOTHING"

ALL = f"SELECT n, {_COLUMNS} FROM facts"
_ALL_TEXTS = f"SELECT n, {_TEXT_COLUMNS}, ''::bytea, '' FROM facts"

_VISIBLE, _VISIBLE_TEXTS = (
    f"{select} WHERE tenant = $1 AND user_name = $2 AND scope <> 'tenant' "
    f"UNION ALL {select} WHERE tenant = $1 AND scope = 'tenant' ORDER BY n"
    for select in (ALL, _ALL_TEXTS)
)

_FORGET_COPIES = "DELETE FROM texts WHERE kind = 'fact' AND tenant = $1 AND user_name = $2"


class PostgresUserFacts:
    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys

    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        query = _VISIBLE if with_vectors else _VISIBLE_TEXTS
        return await self._database.run(partial(_fetch_visible, owner, query, self._keys))

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        await self._keys.prepare(owner.tenant)
        return await self._database.run(partial(_change_facts, owner, make, self._keys))

    async def list_all(self) -> list[Fact]:
        rows = await self._database.run(lambda connection: connection.fetch(f"{ALL} ORDER BY n"))
        readable = await self._keys.select_readable(rows, lambda row: row[5])
        return [decrypt_fact(make_fact(row), self._keys) for row in readable]

    async def import_all(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            await self._keys.prepare(fact.owner.tenant)
            values = list_values(encrypt_fact(fact, self._keys))
            await self._database.run(lambda connection, values=values: connection.execute(_IMPORT, *values))


async def _fetch_visible(owner: Identity, query: str, keys: Keyring, connection: Connection) -> list[Fact]:
    rows = await connection.fetch(query, owner.tenant, owner.user)
    await keys.open_for(row[5] for row in rows)
    return [decrypt_fact(make_fact(row), keys) for row in rows]


async def _change_facts(owner: Identity, make: MakeChange, keys: Keyring, connection: Connection) -> Fact:
    async with connection.transaction():
        await connection.execute(_LOCK, owner.tenant)
        change = make(await _fetch_visible(owner, _VISIBLE_TEXTS, keys, connection))
        if change.changed:
            await connection.executemany(_STORE, [list_values(encrypt_fact(fact, keys)) for fact in change.changed])
            await connection.execute(_FORGET_COPIES, owner.tenant, owner.user)
        return change.fact


def make_fact(row: Sequence[Any]) -> Fact:
    *first, scope, agent_key, topic, chat_id, run_id, line_n = row[:-LAST_COLUMNS]
    source = Source.create(chat_id, run_id, line_n)
    # msgspec leaves a default out by its identity.
    values: list[Any] = [*first, intern(scope), agent_key, topic, source, *row[-LAST_COLUMNS:]]
    return Fact(*values)


def list_values(fact: Fact) -> list[str | int | bytes]:
    source, owner = fact.source, fact.owner
    values: list[str | int | bytes] = [fact.uuid, fact.request_id, fact.updated_at, owner.user, fact.text, owner.tenant]
    values += [fact.scope, fact.agent_key, fact.topic, source.chat_id, source.run_id, source.n]
    values += [fact.created_at, fact.ended_at, fact.replaced_by, fact.deleted_at]
    values += [fact.vector, fact.vector_model, fact.key]
    return [strip_nul(value) for value in values]
