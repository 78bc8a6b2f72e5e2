"""Versions of agents in a table, each a row that is never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.errors import LogDamaged, QuotaExceeded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.blobs import decrypt_definition, encrypt_definition
from services.memory.storage.records.agents import SHARED, VERSIONS_MAX, AgentVersion, hash_definition
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection

_HEAD = "tenant, agent_key, version, hash, created_at"

# One writer of an agent at a time: two may not give the same number to different definitions.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(10) || $2, 0))"
_LAST = "SELECT coalesce(max(version), 0) FROM agent_versions WHERE tenant = $1 AND agent_key = $2"
_TAKEN = "SELECT true FROM agent_versions WHERE tenant = $1 AND agent_key = $2 AND version = $3"
_ALL = f"SELECT {_HEAD} FROM agent_versions ORDER BY tenant, agent_key, version"
_INSERT = f"INSERT INTO agent_versions ({_HEAD}, definition) VALUES ($1, $2, $3, $4, $5, $6)"
_KNOWN = f"SELECT {_HEAD} FROM agent_versions WHERE tenant = $1 AND agent_key = $2 AND hash = $3"
_BY_HASH = f"SELECT {_HEAD}, definition FROM agent_versions WHERE tenant = $1 AND agent_key = $2 AND hash = $3"
_BY_NUMBER = f"SELECT {_HEAD}, definition FROM agent_versions WHERE tenant = $1 AND agent_key = $2 AND version = $3"
_REWRITE = "UPDATE agent_versions SET definition = $4 WHERE tenant = $1 AND agent_key = $2 AND version = $3"
_LIST = f"""
SELECT {_HEAD} FROM agent_versions WHERE tenant = $1 AND agent_key = $2 AND version < $3
ORDER BY version DESC LIMIT $4
"""


class PostgresAgentVersions:
    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys

    async def put(self, tenant: str, agent_key: str, definition: bytes) -> tuple[AgentVersion, bool]:
        return await self._put(tenant, agent_key, definition)

    async def import_version(self, version: AgentVersion, definition: bytes) -> None:
        await self._put(version.tenant, version.agent_key, definition, version)

    async def list_all(self) -> list[AgentVersion]:
        rows = await self._database.run(lambda connection: connection.fetch(_ALL))
        return [AgentVersion(*row) for row in rows]

    async def _put(
        self, tenant: str, agent_key: str, definition: bytes, imported: AgentVersion | None = None
    ) -> tuple[AgentVersion, bool]:
        digest = hash_definition(definition)
        if tenant != SHARED:
            await self._keys.prepare(tenant)
        stored = encrypt_definition(tenant, agent_key, digest, definition, self._keys)

        async def add(connection: Connection) -> tuple[AgentVersion, bool]:
            async with connection.transaction():
                await connection.execute(_LOCK, tenant, agent_key)
                if known := await connection.fetchrow(_KNOWN, tenant, agent_key, digest):
                    return AgentVersion(*known), False
                last = await connection.fetchval(_LAST, tenant, agent_key)
                if last >= VERSIONS_MAX:
                    raise QuotaExceeded(f"agent {agent_key!r} has had {VERSIONS_MAX} versions; give it another key")
                added = AgentVersion(tenant, agent_key, last + 1, digest, now_ms())
                if imported is not None and not await connection.fetchval(_TAKEN, tenant, agent_key, imported.version):
                    added = msgspec.structs.replace(imported, hash=digest)
                await connection.execute(_INSERT, tenant, agent_key, added.version, digest, added.created_at, stored)
                return added, True

        known = await self._database.run(lambda connection: connection.fetchrow(_KNOWN, tenant, agent_key, digest))
        return (AgentVersion(*known), False) if known else await self._database.run(add)

    async def find(
        self, tenant: str, agent_key: str, *, version: int = 0, digest: str = ""
    ) -> tuple[AgentVersion, bytes] | None:
        statement, value = (_BY_NUMBER, version) if version else (_BY_HASH, digest)
        row = await self._database.run(lambda connection: connection.fetchrow(statement, tenant, agent_key, value))
        if row is None:
            return None
        found, stored = AgentVersion(*row[:5]), row[5]
        await self._keys.open_for([stored])
        definition = decrypt_definition(tenant, agent_key, found.hash, stored, self._keys)
        if hash_definition(definition) != found.hash:
            raise LogDamaged(f"version {found.version} of agent {agent_key!r} is damaged in the store")
        return found, definition

    async def rewrite(self, version: AgentVersion) -> bool:
        """Write a version as it would be written now, if it is not so; return whether it was. Raises LogDamaged,
        KeyUnavailable, Overloaded."""
        key = (version.tenant, version.agent_key, version.version)
        row = await self._database.run(lambda connection: connection.fetchrow(_BY_NUMBER, *key))
        if row is None or version.tenant == SHARED or self._keys.is_current(version.tenant, row[5]):
            return False
        await self._keys.prepare_newest(version.tenant)
        found = await self.find(*key[:2], version=version.version)
        assert found is not None, "no version is ever deleted"
        stored = encrypt_definition(version.tenant, version.agent_key, version.hash, found[1], self._keys)
        await self._database.run(lambda connection: connection.execute(_REWRITE, *key, stored))
        return True

    async def list_before(self, tenant: str, agent_key: str, before: int, count: int) -> list[AgentVersion]:
        rows = await self._database.run(lambda connection: connection.fetch(_LIST, tenant, agent_key, before, count))
        return [AgentVersion(*row) for row in rows]
