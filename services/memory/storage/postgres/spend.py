"""Spending in the database, written by the statement that stores the charged lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING

import orjson

from services.memory.storage.claims import (
    RUN,
    Amount,
    BudgetUse,
    SpendClaim,
    SpendDecision,
    decide_claim,
    render_use,
)
from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.spend import SUM_NAMES, SpendAnswer, SpendQuery, SpendRow

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

_RETIRE = f"""
INSERT INTO spend (chat, {_KEYS}, {_SUMS}) SELECT {_DELETED}, {_KEYS}, {_SUMS} FROM spend WHERE chat = $1
ORDER BY {_KEYS} {_ADD}
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


async def retire_chat(row: int, connection: Connection) -> None:
    """Keep the spending of a chat that is about to be deleted."""
    await connection.execute(_RETIRE, row)
    await connection.execute("DELETE FROM spend WHERE chat = $1", row)


async def delete_spend_of_chat(row: int, connection: Connection) -> None:
    """Delete the spending of a chat whose lines, with their charges, are about to be stored again."""
    await connection.execute("DELETE FROM spend WHERE chat = $1", row)


_RENAME = f"""
INSERT INTO spend (chat, {_KEYS}, {_SUMS})
SELECT chat, day, tenant, $3, agent_key, model, '', {", ".join(f"sum({name})::bigint" for name in SUM_NAMES)}
FROM spend WHERE chat = {_DELETED} AND tenant = $1 AND user_name = $2 GROUP BY chat, day, tenant, agent_key, model
ORDER BY day, tenant, agent_key, model {_ADD}
"""


async def rename_spender(tenant: str, user: str, name: str, connection: Connection) -> int:
    """Rename the user in the spending of deleted chats, and remove the API keys from it; return the rows."""
    async with connection.transaction():
        await connection.execute(_RENAME, tenant, user, name)
        gone = f"DELETE FROM spend WHERE chat = {_DELETED} AND tenant = $1 AND user_name = $2 RETURNING 1"
        return len(await connection.fetch(gone, tenant, user))


class PostgresSpend:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def grant_claim(self, claim: SpendClaim) -> SpendDecision | None:
        return await self._database.run(partial(grant_claim, claim))

    async def measure_uses(self, claim: SpendClaim) -> list[BudgetUse]:
        return await self._database.run(partial(measure_uses, claim))

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

_CLEAN = "DELETE FROM grants USING runs WHERE runs.run_id = grants.run_id AND runs.of_tenant = $1 AND runs.is_ended"

_PUT = """
INSERT INTO grants (run_id, nano_usd, tokens, agents) VALUES ($1, $2, $3, $4)
ON CONFLICT (run_id) DO UPDATE SET nano_usd = EXCLUDED.nano_usd, tokens = EXCLUDED.tokens, agents = EXCLUDED.agents
"""


async def grant_claim(claim: SpendClaim, connection: Connection) -> SpendDecision | None:
    """Decide a claim and store the grant; None if the tenant has no such active run."""
    async with connection.transaction():
        await connection.execute(_LOCK, claim.tenant)
        await connection.execute(_CLEAN, claim.tenant)
        charged = await connection.fetchrow(RUN, claim.run_id, claim.tenant)
        if charged is None:
            return None
        decision = decide_claim(claim, Amount(*charged), await measure_uses(claim, connection))
        if (grant := decision.granted) is not None:
            await connection.execute(_PUT, claim.run_id, grant.nano_usd, grant.tokens, strip_nul(claim.agents))
        return decision


async def measure_uses(claim: SpendClaim, connection: Connection) -> list[BudgetUse]:
    """Return the usage of each budget of the claim, without its run's own grant."""
    uses: list[BudgetUse] = []
    for budget in claim.budgets:
        statement, values = render_use(claim, budget, _SOURCE)
        row = await connection.fetchrow(statement, *map(strip_nul, values))
        assert row is not None, "sums have a row"
        uses.append(BudgetUse(Amount(*row[:2]), Amount(*row[2:])))
    return uses
