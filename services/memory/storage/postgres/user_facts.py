"""Facts about users, beside the chats; searched as their texts are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from services.memory.storage.postgres.statements import plain
from services.memory.storage.user_facts import Fact

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

_REMEMBER = """
WITH fact AS (
    INSERT INTO facts (fact_id, key, request_id, updated_at, text, tenant, user_name)
    VALUES ($1, $2, $3, $4, $5, $7, $8)
    ON CONFLICT (tenant, user_name, key) DO NOTHING RETURNING text
)
INSERT INTO texts (run_id, kind, text, folded, tenant, user_name) SELECT '', 'fact', text, $6, $7, $8 FROM fact
"""


_KEPT = "SELECT fact_id FROM facts WHERE key = $1 AND tenant = $2 AND user_name = $3"


async def remember(facts: Iterable[Fact], connection: Connection) -> str:
    """Keep facts but for those that are known; the id of the last, which is what was known where it was."""
    fact_id = ""
    for fact in facts:
        key, text = plain(fact.key), plain(fact.text)
        values = (fact.uuid, key, plain(fact.request_id), fact.updated_at, text, text.casefold())
        owner = (fact.owner.tenant, fact.owner.user)
        await connection.execute(_REMEMBER, *values, *owner)
        fact_id = await connection.fetchval(_KEPT, key, *owner)
    return fact_id


async def every(connection: Connection) -> list[Fact]:
    """In the order in which they were kept."""
    query = "SELECT n, fact_id, request_id, updated_at, user_name, text, tenant FROM facts ORDER BY n"
    return [Fact(*row) for row in await connection.fetch(query)]
