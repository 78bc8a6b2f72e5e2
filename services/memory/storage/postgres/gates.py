"""Gates in the database, written by the statement that stores their lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.gates.query import LIST_CHATS, read_gate_chats
from services.memory.storage.gates.rows import COLUMNS, GRANT_COLUMNS, GateEntry
from services.memory.storage.postgres.connection.session import strip_nul

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.gates.query import GateQuery, GrantQuery
    from services.memory.storage.gates.rows import GateChange, GateUpdate, GrantEntry
    from services.memory.storage.gates.watch import GateKey
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.where import Place

_COUNTED = frozenset({"opened_at", "expires_at", "closed_at", "not_requester", "votes_needed", "claimed_until"})

_TYPES = ", ".join(f"{name} {'bigint' if name in _COUNTED else 'text'}" for name in COLUMNS.split(", "))

_GRANT_COUNTED = frozenset({"made_at", "expires_at", "is_over"})
_GRANT_TYPES = ", ".join(
    f"{name} {'bigint' if name in _GRANT_COUNTED else 'text'}" for name in GRANT_COLUMNS.split(", ")
)

CHANNEL = "headrace_gates"

_TELL = f"pg_notify('{CHANNEL}', gates.run_id || ' ' || gates.gate_id)"
"""Notifies all services of a changed row, in the transaction that changes it, so that none is missed. Such transactions
are committed one by one, but there are few."""


@cache
def make_store(first: int) -> str:
    """Return the part that follows the update of the chat; its values' marks begin with `first`.

    A change closes no row that it opens, so the order does not matter.
    """
    return f"""
, gate AS (
    INSERT INTO gates (chat, {COLUMNS})
    SELECT chat.id, gate.* FROM chat, jsonb_to_recordset(${first}::text::jsonb) AS gate({_TYPES})
    ON CONFLICT (run_id, gate_id) DO UPDATE SET state = EXCLUDED.state, closed_at = EXCLUDED.closed_at,
        answered_by = EXCLUDED.answered_by, credential = EXCLUDED.credential, answerers = EXCLUDED.answerers,
        voters = EXCLUDED.voters, claimed_by = EXCLUDED.claimed_by, claimed_until = EXCLUDED.claimed_until
    RETURNING {_TELL}
), closed AS (
    UPDATE gates SET state = coalesce(closing.state, gates.state),
        closed_at = coalesce(closing.closed_at, gates.closed_at),
        answered_by = coalesce(closing.answered_by, gates.answered_by),
        credential = coalesce(closing.credential, gates.credential),
        answerers = gates.answerers || coalesce(closing.answerers, ''),
        voters = CASE WHEN closing.is_restart THEN '' ELSE gates.voters END || coalesce(closing.voters, ''),
        claimed_by = coalesce(closing.claimed_by, gates.claimed_by),
        claimed_until = coalesce(closing.claimed_until, gates.claimed_until)
    FROM chat, jsonb_to_recordset(${first + 1}::text::jsonb) AS closing(
        run_id text, gate_id text, others jsonb, state text, closed_at bigint, answered_by text, credential text,
        answerers text, voters text, is_restart boolean, claimed_by text, claimed_until bigint)
    WHERE gates.run_id = closing.run_id AND gates.gate_id = coalesce(closing.gate_id, gates.gate_id)
        AND NOT coalesce(closing.others ? gates.gate_id, false) AND gates.state = 'open' AND gates.tenant = $25
    RETURNING {_TELL}
), granted AS (
    INSERT INTO gate_grants (chat, {GRANT_COLUMNS})
    SELECT chat.id, made.* FROM chat, jsonb_to_recordset(${first + 2}::text::jsonb) AS made({_GRANT_TYPES})
    ON CONFLICT (chat, grant_id) DO UPDATE SET is_over = EXCLUDED.is_over
)
"""


def encode_change(change: GateChange) -> tuple[str, str, str]:
    """Return the values of the part's three marks."""
    # The first closing counts, and an update that meets two takes any: so each gate has one.
    closings: dict[tuple[str, str | None], dict[str, Any]] = {}
    for closing in change.closings:
        closings.setdefault((closing.run_id, closing.gate_id), asdict(closing))
    for update in change.updates:
        _add_update(closings, update)
    for (run_id, gate_id), closing in closings.items():
        if gate_id is None:
            closing["others"] = [other for of, other in closings if of == run_id and other is not None]
    return _encode(map(asdict, change.opened)), _encode(closings.values()), _encode(map(asdict, change.grants))


def _add_update(closings: dict[tuple[str, str | None], dict[str, Any]], update: GateUpdate) -> None:
    """Merge a step's change into the row's single entry, which may already hold the end of the gate or of its run."""
    key = (update.run_id, update.gate_id)
    if key not in closings:
        closings[key] = closings.get((update.run_id, None), {}) | {"run_id": update.run_id, "gate_id": update.gate_id}
    row = closings[key]
    row["answerers"] = row.get("answerers", "") + update.answerers
    row["voters"] = update.voters if update.is_restart else row.get("voters", "") + update.voters
    if update.claimed_by is not None:
        row |= {"claimed_by": update.claimed_by, "claimed_until": update.claimed_until}
    row["is_restart"] = row.get("is_restart", False) or update.is_restart


def _encode(rows: Iterable[dict[str, Any]]) -> str:
    named = [{name: strip_nul(value) for name, value in row.items()} for row in rows]
    return orjson.dumps(named).decode()


class PostgresGates:
    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys, self._rows = keys, RowCipher(keys)

    async def find_gate(self, tenant: str, run_id: str, gate_id: str) -> GateEntry | None:
        query = f"SELECT {COLUMNS} FROM gates WHERE run_id = $1 AND gate_id = $2 AND tenant = $3"
        row = await self._database.run(
            lambda connection: connection.fetchrow(query, run_id, strip_nul(gate_id), tenant)
        )
        if row is None:
            return None
        gate = GateEntry(*row)
        await self._keys.open_for([gate.reason])
        return self._rows.decrypt_gate(gate)

    async def find_gates(self, keys: Collection[GateKey]) -> list[GateEntry]:
        query = f"""
            SELECT {COLUMNS} FROM gates JOIN unnest($1::text[], $2::text[]) AS wanted(run, gate)
            ON run_id = wanted.run AND gate_id = coalesce(wanted.gate, gate_id)"""
        columns = [run_id for run_id, _ in keys], [gate_id for _, gate_id in keys]
        rows = await self._database.run(lambda connection: connection.fetch(query, *columns))
        gates = [GateEntry(*row) for row in rows]
        await self._keys.select_readable(gates, lambda gate: gate.reason)
        return self._rows.decrypt_known_gates(gates)

    async def list_gates(self, query: GateQuery) -> tuple[list[GateEntry], Place | None]:
        statement, given = query.render()
        values = [strip_nul(value) for value in given]
        gates, after = query.split(await self._database.run(lambda connection: connection.fetch(statement, *values)))
        await self._keys.open_for(gate.reason for gate in gates)
        return self._rows.decrypt_gates(gates), after

    async def list_gate_chats(self, tenant: str, since: int) -> list[str]:
        async def read(after: str) -> list[Any]:
            return await self._database.run(lambda connection: connection.fetch(LIST_CHATS, tenant, after))

        return await read_gate_chats(read, since)

    async def list_grants(self, query: GrantQuery) -> tuple[list[GrantEntry], Place | None]:
        statement, given = query.render()
        values = [strip_nul(value) for value in given]
        grants, after = query.split(await self._database.run(lambda connection: connection.fetch(statement, *values)))
        await self._keys.open_for(grant.event for grant in grants)
        return self._rows.decrypt_grants(grants), after
