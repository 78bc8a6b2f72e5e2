"""API keys in a table, each a row that changes if it is as its writer read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from services.memory.storage.records.keys import StoredKey, decode_key, encode_key

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database

_OWN = "SELECT revision, data FROM api_keys WHERE tenant = $1 ORDER BY created_at, key_id"
_ALL = "SELECT revision, data FROM api_keys ORDER BY revision"
_COUNT = "SELECT count(*) FROM api_keys"
_FIND = "SELECT revision, data FROM api_keys WHERE key_id = $1"
_CHANGES = "SELECT revision, data FROM api_keys WHERE revision > $1 ORDER BY revision LIMIT $2"
_DELETE = "DELETE FROM api_keys WHERE key_id = $1"

_INSERT = """
WITH next AS (UPDATE api_key_revision SET last = last + 1 RETURNING last)
INSERT INTO api_keys (key_id, version, data, tenant, created_at, revision)
SELECT $1, $2, $3, $4, $5, next.last FROM next ON CONFLICT DO NOTHING RETURNING revision
"""

_UPDATE = """
WITH next AS (UPDATE api_key_revision SET last = last + 1 RETURNING last)
UPDATE api_keys SET version = $2, data = $3, revision = next.last FROM next
WHERE key_id = $1 AND version = $4 RETURNING revision
"""


class PostgresKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_own(self, tenant: str, *, suspends: bool = False) -> list[StoredKey]:
        return [key for key in await self._fetch(_OWN, tenant) if key.suspends == suspends]

    async def list_all(self) -> list[StoredKey]:
        return await self._fetch(_ALL)

    async def count_all(self) -> int:
        return await self._database.run(lambda connection: connection.fetchval(_COUNT))

    async def find(self, key_id: str) -> StoredKey | None:
        return next(iter(await self._fetch(_FIND, key_id)), None)

    async def put(self, key: StoredKey, before: int = 0) -> bool:
        values: tuple[Any, ...] = (key.key_id, key.version, encode_key(key))
        inserted = (*values, key.tenant, key.created_at)
        statement, values = (_UPDATE, (*values, before)) if before else (_INSERT, inserted)
        # An answer that is lost is repeated, and then finds its own change: who asks reads it again.
        return await self._database.run(lambda connection: connection.fetchval(statement, *values)) is not None

    async def delete(self, key_id: str) -> None:
        await self._database.run(lambda connection: connection.execute(_DELETE, key_id))

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        return await self._fetch(_CHANGES, after_revision, count)

    async def _fetch(self, statement: str, *values: Any) -> list[StoredKey]:
        rows = await self._database.run(lambda connection: connection.fetch(statement, *values))
        return [replace(decode_key(row[1]), revision=row[0]) for row in rows]
