"""Tenants' agents in a table, each a row that changes if it is as its writer read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.records import encrypt_record, read_record
from services.memory.storage.records.agents import (
    AGENT,
    AgentUse,
    StoredAgent,
    decode_agent,
    encode_agent,
    find_record_id,
)

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.connection.pool import Database

_ALL = "SELECT revision, record_id, data FROM tenant_agents ORDER BY revision"
_FIND = "SELECT revision, record_id, data FROM tenant_agents WHERE record_id = $1"
_CHANGES = "SELECT revision, record_id, data FROM tenant_agents WHERE revision > $1 ORDER BY revision LIMIT $2"
_FORGET = "DELETE FROM tenant_agents WHERE bytes = 0 AND updated_at < $1"
_MEASURE = """
SELECT count(*) FILTER (WHERE tenant = $1), coalesce(sum(bytes) FILTER (WHERE tenant = $1), 0)::bigint, count(*)
FROM tenant_agents WHERE bytes > 0
"""

_INSERT = """
WITH next AS (UPDATE tenant_agent_revision SET last = last + 1 RETURNING last)
INSERT INTO tenant_agents (record_id, version, data, bytes, updated_at, tenant, revision)
SELECT $1, $2, $3, $4, $5, $6, next.last FROM next ON CONFLICT DO NOTHING RETURNING revision
"""

_UPDATE = """
WITH next AS (UPDATE tenant_agent_revision SET last = last + 1 RETURNING last)
UPDATE tenant_agents SET version = $2, data = $3, bytes = $4, updated_at = $5, revision = next.last FROM next
WHERE record_id = $1 AND version = $6 RETURNING revision
"""


class PostgresStoredAgents:
    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys

    async def list_all(self) -> list[StoredAgent]:
        return await self._fetch(_ALL)

    async def find(self, tenant: str, agent_key: str) -> StoredAgent | None:
        await self._keys.open_tenant(tenant)
        return next(iter(await self._fetch(_FIND, find_record_id(tenant, agent_key))), None)

    async def put(self, agent: StoredAgent, before: int = 0) -> bool:
        await self._keys.prepare(agent.tenant)
        size = len(agent.definition.encode())
        data = encode_row(agent, self._keys)
        values: tuple[Any, ...] = (agent.record_id, agent.version, data, size, agent.updated_at)
        statement, values = (_UPDATE, (*values, before)) if before else (_INSERT, (*values, agent.tenant))
        # An answer that is lost is repeated, and then finds its own change: who asks reads it again.
        return await self._database.run(lambda connection: connection.fetchval(statement, *values)) is not None

    async def forget(self, before: int) -> None:
        await self._database.run(lambda connection: connection.execute(_FORGET, before))

    async def measure(self, tenant: str) -> AgentUse:
        return AgentUse(*await self._database.run(lambda connection: connection.fetchrow(_MEASURE, tenant)))

    async def list_changes(self, after_revision: int, count: int) -> list[StoredAgent]:
        return await self._fetch(_CHANGES, after_revision, count)

    async def _fetch(self, statement: str, *values: Any) -> list[StoredAgent]:
        rows = await self._database.run(lambda connection: connection.fetch(statement, *values))
        # Of all tenants: those whose keys cannot be had are left out.
        readable = await self._keys.select_readable(rows, lambda row: row[2])
        return [_decode_row(self._keys, *row) for row in readable]


def encode_row(agent: StoredAgent, keys: Keyring) -> bytes:
    return encrypt_record(AGENT, agent.record_id, encode_agent(agent), keys, agent.tenant)


def _decode_row(keys: Keyring, revision: int, record_id: str, data: bytes) -> StoredAgent:
    return replace(decode_agent(read_record(AGENT, record_id, data, keys)), revision=revision)
