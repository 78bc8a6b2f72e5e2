from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from services.memory.storage.postgres.statements import strip_nul
from services.memory.storage.user_facts import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.runtime.auth.identity import Identity

_REMEMBER = """
WITH fact AS (
    INSERT INTO facts (fact_id, key, request_id, updated_at, text, tenant, user_name)
    VALUES ($1, $2, $3, $4, $5, $7, $8)
    ON CONFLICT (tenant, user_name, key) DO NOTHING RETURNING text
)
INSERT INTO texts (run_id, kind, text, folded, tenant, user_name) SELECT '', 'fact', text, $6, $7, $8 FROM fact
"""

_KEPT = "SELECT fact_id FROM facts WHERE key = $1 AND tenant = $2 AND user_name = $3"
_LIST = "SELECT n, fact_id, request_id, updated_at, user_name, text, tenant FROM facts ORDER BY n"


class PostgresUserFacts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        return await self._database.run(partial(_store_fact, Fact.create(owner, text, request_id)))

    async def list_all(self) -> list[Fact]:
        return [Fact(*row) for row in await self._database.run(lambda connection: connection.fetch(_LIST))]

    async def import_all(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            await self._database.run(partial(_store_fact, fact))


async def _store_fact(fact: Fact, connection: Connection) -> str:
    key, text = strip_nul(fact.key), strip_nul(fact.text)
    values = (fact.uuid, key, strip_nul(fact.request_id), fact.updated_at, text, text.casefold())
    owner = (fact.owner.tenant, fact.owner.user)
    await connection.execute(_REMEMBER, *values, *owner)
    return await connection.fetchval(_KEPT, key, *owner)
