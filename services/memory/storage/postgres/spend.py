"""Spending in the database, written by the statement that stores the charged lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import orjson

from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.reservations import (
    RUN,
    Amount,
    BudgetUse,
    SpendDecision,
    SpendReservation,
    decide_reservation,
    render_use,
)
from services.memory.storage.spend import IS_ZERO, SUM_NAMES, SpendAnswer, SpendQuery, SpendRow

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection


_DELETED = 0
"""The chat number of rows of deleted chats; no chat has it."""

_KEYS = "day, tenant, user_name, agent_key, model, credential"
_SUMS = ", ".join(SUM_NAMES)
_ADD = f"ON CONFLICT (chat, {_KEYS}) DO UPDATE SET " + ", ".join(
    f"{name} = spend.{name} + EXCLUDED.{name}" for name in SUM_NAMES
)

_TYPES = ", ".join(
    [
        'day bigint, tenant text, "user" text, agent_key text, model text, credential text',
        *(f"{name} bigint" for name in SUM_NAMES),
    ]
)

_ADDED = ", ".join(f"sum({name})::bigint" for name in SUM_NAMES)

_RETIRE = f"""
INSERT INTO spend (chat, {_KEYS}, {_SUMS}) SELECT {_DELETED}, {_KEYS}, {_ADDED} FROM spend WHERE chat = ANY($1)
GROUP BY {_KEYS} ORDER BY {_KEYS} {_ADD}
"""
"""In a fixed order, because two concurrently deleted chats of a user could otherwise deadlock on each other's sums."""


@cache
def make_store(mark: int) -> str:
    """Return the part that follows the update of the chat; its rows are the value of `mark`."""
    return f"""
, spent AS (
    INSERT INTO spend (chat, {_KEYS}, {_SUMS})
    SELECT chat.id, item.* FROM chat, jsonb_to_recordset(${mark}::text::jsonb) AS item({_TYPES})
    {_ADD}
)
"""


def encode_rows(rows: Iterable[SpendRow]) -> str:
    named = [asdict(key) | asdict(total) for key, total in rows]
    return orjson.dumps([{name: strip_nul(value) for name, value in row.items()} for row in named]).decode()


async def retire_chats(rows: list[int], connection: Connection) -> None:
    """Keep the spending of chats that are about to be deleted."""
    await connection.execute(_RETIRE, rows)
    await connection.execute("DELETE FROM spend WHERE chat = ANY($1)", rows)


async def delete_spend_of_chat(row: int, connection: Connection) -> None:
    """Delete the spending of a chat whose lines, with their charges, are about to be stored again."""
    await connection.execute("DELETE FROM spend WHERE chat = $1", row)


FREE_GRANTS = """
, freed AS (
    DELETE FROM grants USING chat, unnest($12::text[], $17::boolean[]) AS run(run_id, is_ended)
    WHERE grants.run_id = run.run_id AND run.is_ended
)
"""
"""The part that returns what ended runs have left of budgets; its marks are those of the runs."""


_RENAME = f"""
INSERT INTO spend (chat, {_KEYS}, {_SUMS})
SELECT chat, day, tenant, $3, agent_key, model, '', {_ADDED}
FROM spend WHERE chat = {_DELETED} AND tenant = $1 AND user_name = $2 GROUP BY chat, day, tenant, agent_key, model
ORDER BY day, tenant, agent_key, model {_ADD}
"""

_DELETE_SUMS = f"""
DELETE FROM spend_sums WHERE tenant = $1 AND scope = 'user' AND ($2::text IS NULL OR user_name = $2) AND {IS_ZERO}
"""
"""Removes the names from sums that have nothing left."""


async def rename_spender(tenant: str, user: str, name: str, connection: Connection) -> int:
    """Rename the user in the spending of deleted chats, and remove the API keys from it; return the rows."""
    async with connection.transaction():
        await connection.execute(_RENAME, tenant, user, name)
        gone = f"DELETE FROM spend WHERE chat = {_DELETED} AND tenant = $1 AND user_name = $2 RETURNING 1"
        renamed = len(await connection.fetch(gone, tenant, user))
        await connection.execute(_DELETE_SUMS, tenant, user)
        return renamed


async def delete_spend(tenant: str, connection: Connection) -> int:
    """Delete all spending of the tenant's deleted chats; return the rows."""
    async with connection.transaction():
        gone = f"DELETE FROM spend WHERE chat = {_DELETED} AND tenant = $1 RETURNING 1"
        deleted = len(await connection.fetch(gone, tenant))
        await connection.execute(_DELETE_SUMS, tenant, None)
        return deleted


class PostgresSpend:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._claiming = WeakValueDictionary[str, asyncio.Lock]()
        """By tenant, so that claims wait for each other with one connection and not with all."""

    async def reserve_spend(self, reservation: SpendReservation) -> SpendDecision | None:
        lock = self._claiming.setdefault(reservation.tenant, asyncio.Lock())
        async with lock:
            return await self._database.run(partial(reserve_spend, reservation))

    async def measure_uses(self, reservation: SpendReservation) -> list[BudgetUse]:
        return await self._database.run(partial(measure_uses, reservation))

    async def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        rows_query, total_query = query.render() if query.columns else None, query.render_total()

        async def fetch(connection: Connection) -> SpendAnswer:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                total = await connection.fetchrow(total_query[0], *map(strip_nul, total_query[1]))
                rows = await connection.fetch(rows_query[0], *map(strip_nul, rows_query[1])) if rows_query else []
            assert total is not None, "a sum has one row"
            return SpendAnswer.from_rows(query, [tuple(row) for row in rows], tuple(total))

        return await self._database.run(fetch)


_SOURCE = "grants JOIN runs USING (run_id)"

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('budgets of ' || $1, 0))"
"""Held until the transaction ends, so that claims of a tenant are serialized."""

_PUT = """
INSERT INTO grants (run_id, nano_usd, tokens, agents) VALUES ($1, $2, $3, $4)
ON CONFLICT (run_id) DO UPDATE SET nano_usd = EXCLUDED.nano_usd, tokens = EXCLUDED.tokens, agents = EXCLUDED.agents
"""


async def reserve_spend(reservation: SpendReservation, connection: Connection) -> SpendDecision | None:
    """Decide a claim and store the grant; None if the tenant has no such active run."""
    async with connection.transaction():
        await connection.execute(_LOCK, reservation.tenant)
        charged = await connection.fetchrow(RUN, reservation.run_id, reservation.tenant)
        if charged is None:
            return None
        decision = decide_reservation(reservation, Amount(*charged), await measure_uses(reservation, connection))
        if (grant := decision.granted) is not None:
            await connection.execute(
                _PUT, reservation.run_id, grant.nano_usd, grant.tokens, strip_nul(reservation.agents)
            )
        return decision


async def measure_uses(reservation: SpendReservation, connection: Connection) -> list[BudgetUse]:
    """Return the usage of each budget of the claim, without its run's own grant."""
    uses: list[BudgetUse] = []
    for budget in reservation.budgets:
        statement, values = render_use(reservation, budget, _SOURCE)
        row = await connection.fetchrow(statement, *map(strip_nul, values))
        assert row is not None, "sums have a row"
        uses.append(BudgetUse(Amount(*row[:2]), Amount(*row[2:])))
    return uses
