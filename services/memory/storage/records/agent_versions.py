"""Versions of agents, which runs are pinned to. Each is stored once and never changed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import LogDamaged, QuotaExceeded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.records import decrypt_whole
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.sql import Row, Sql, Statement

SHARED = ""
"""In place of a tenant: the operator's agents, which all tenants share. No tenant's name is empty."""

VERSIONS_MAX = 10_000
"""Maximum versions of one agent. No one edits a file that often, but a tool with an unstable definition would reach
it."""


class AgentVersion(msgspec.Struct, frozen=True, rename="camel"):
    """A version without its definition."""

    tenant: str
    agent_key: str
    version: int
    """Number among the agent's versions, from 1, in the order of their first use."""

    hash: str
    """SHA-256 of the definition, in hexadecimal."""

    created_at: int
    """When it was stored, Unix milliseconds."""


class ExportedVersion(msgspec.Struct, frozen=True, rename="camel"):
    """A version with its definition, as one line of an export."""

    version: AgentVersion
    definition: str


def encode_version(version: AgentVersion, definition: bytes) -> bytes:
    return msgspec.json.encode(ExportedVersion(version, definition.decode())) + b"\n"


def decode_version(line: bytes) -> tuple[AgentVersion, bytes]:
    """Parse an export's line. Raises msgspec.DecodeError."""
    exported = msgspec.json.decode(line, type=ExportedVersion)
    return exported.version, exported.definition.encode()


def hash_definition(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()


TABLES = (
    """
    CREATE TABLE IF NOT EXISTS agent_versions (
        tenant text NOT NULL, agent_key text NOT NULL, version bigint NOT NULL, hash text NOT NULL,
        created_at bigint NOT NULL, definition blob NOT NULL,
        PRIMARY KEY (tenant, agent_key, version), UNIQUE (tenant, agent_key, hash))
    """,
)

_HEAD = "tenant, agent_key, version, hash, created_at"
_OF_AGENT = "tenant = $1 AND agent_key = $2"
_VERSION = f"{_OF_AGENT} AND version = $3"
INSERT = f"INSERT INTO agent_versions ({_HEAD}, definition) VALUES ($1, $2, $3, $4, $5, $6)"
_KNOWN = f"SELECT {_HEAD} FROM agent_versions WHERE {_OF_AGENT} AND hash = $3"
_NUMBERS = f"SELECT version, hash, created_at FROM agent_versions WHERE {_OF_AGENT}"
_BY_HASH = f"SELECT {_HEAD}, definition FROM agent_versions WHERE {_OF_AGENT} AND hash = $3"
_BY_NUMBER = f"SELECT {_HEAD}, definition FROM agent_versions WHERE {_VERSION}"
_REWRITE = f"UPDATE agent_versions SET definition = $4 WHERE {_VERSION} AND definition = $5 RETURNING 1"
_LIST = f"SELECT {_HEAD} FROM agent_versions WHERE {_OF_AGENT} AND version < $3 ORDER BY version DESC LIMIT $4"


class AgentVersions:
    def __init__(self, sql: Sql, keys: Keyring = NO_KEYS) -> None:
        self._sql = sql
        self._keys = keys

    async def put(self, tenant: str, agent_key: str, definition: bytes) -> tuple[AgentVersion, bool]:
        """Return the agent's version with this definition, and whether it is new; a new one gets the next number.

        Raises:
            QuotaExceeded: The agent has had VERSIONS_MAX versions.
        """
        return await self._put(tenant, agent_key, definition, None)

    async def import_version(self, version: AgentVersion, definition: bytes) -> None:
        """Store a version of another store, with its number if that is free here; a known definition is unchanged."""
        await self._put(version.tenant, version.agent_key, definition, version)

    async def list_all(self) -> list[AgentVersion]:
        """List the versions of all agents, by tenant, key and number."""
        rows = await self._fetch(f"SELECT {_HEAD} FROM agent_versions ORDER BY tenant, agent_key, version")
        return [AgentVersion(*row) for row in rows]

    async def find(
        self, tenant: str, agent_key: str, *, version: int = 0, digest: str = ""
    ) -> tuple[AgentVersion, bytes] | None:
        """Return a version by its number, or by its hash if the number is 0. Raises LogDamaged, KeyUnavailable."""
        rows = await self._fetch(_BY_NUMBER if version else _BY_HASH, tenant, agent_key, version or digest)
        if not rows:
            return None
        found, stored = AgentVersion(*rows[0][:5]), rows[0][5]
        await self._keys.open_for([stored])
        definition = decrypt_whole(_name_definition(tenant, agent_key, found.hash), stored, self._keys)
        if hash_definition(definition) != found.hash:
            raise LogDamaged(f"version {found.version} of agent {agent_key!r} is damaged in the store")
        return found, definition

    async def list_before(self, tenant: str, agent_key: str, before: int, count: int) -> list[AgentVersion]:
        """List `count` versions with smaller numbers, newest first."""
        return [AgentVersion(*row) for row in await self._fetch(_LIST, tenant, agent_key, before, count)]

    async def count_own(self, tenant: str) -> int:
        return (await self._fetch("SELECT count(*) FROM agent_versions WHERE tenant = $1", tenant))[0][0]

    async def delete_own(self, tenant: str) -> int:
        """Delete the versions of the tenant's agents and return their number."""
        return len(await self._fetch("DELETE FROM agent_versions WHERE tenant = $1 RETURNING 1", tenant))

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        """Yield each version's name, with a function that converts it to its current form."""
        for found in await self.list_all():
            if found.tenant != SHARED:
                name = f"version {found.version} of agent {found.agent_key} of tenant {found.tenant}"
                yield name, partial(self._rewrite, found)

    async def _put(
        self, tenant: str, agent_key: str, definition: bytes, imported: AgentVersion | None
    ) -> tuple[AgentVersion, bool]:
        digest = hash_definition(definition)
        if known := await self._fetch(_KNOWN, tenant, agent_key, digest):
            return AgentVersion(*known[0]), False
        if tenant != SHARED:
            await self._keys.prepare(tenant)
        stored = self._encrypt(tenant, agent_key, digest, definition)

        def add(rows: list[Row]) -> tuple[list[Statement], tuple[AgentVersion, bool]]:
            known = {row[0]: row for row in rows}
            for version, known_digest, created_at in rows:
                if known_digest == digest:
                    return [], (AgentVersion(tenant, agent_key, version, digest, created_at), False)
            if (last := max(known, default=0)) >= VERSIONS_MAX:
                raise QuotaExceeded(f"agent {agent_key!r} has had {VERSIONS_MAX} versions; give it another key")
            added = AgentVersion(tenant, agent_key, last + 1, digest, now_ms())
            if imported is not None and imported.version not in known:
                added = msgspec.structs.replace(imported, hash=digest)
            insert = (INSERT, (tenant, agent_key, added.version, digest, added.created_at, stored))
            return [insert], (added, True)

        return await self._sql.decide(f"{tenant}\n{agent_key}", (_NUMBERS, (tenant, agent_key)), add)

    async def _rewrite(self, version: AgentVersion) -> bool:
        key = (version.tenant, version.agent_key, version.version)
        rows = await self._fetch(_BY_NUMBER, *key)
        if not rows or self._keys.is_current(version.tenant, rows[0][5]):
            return False
        await self._keys.prepare_newest(version.tenant)
        found = await self.find(*key[:2], version=version.version)
        if found is None:
            return False
        stored = self._encrypt(version.tenant, version.agent_key, version.hash, found[1])
        return bool(await self._fetch(_REWRITE, *key, stored, rows[0][5]))

    def _encrypt(self, tenant: str, agent_key: str, digest: str, definition: bytes) -> bytes:
        """Encrypt a tenant's definition; the operator's are in plain text, as in their files."""
        if not self._keys.encrypts or tenant == SHARED:
            return definition
        return self._keys.encrypt(tenant, _name_definition(tenant, agent_key, digest), definition)

    async def _fetch(self, text: str, *values: str | float | bytes) -> list[Row]:
        return (await self._sql.run((text, values)))[0]


def _name_definition(tenant: str, agent_key: str, digest: str) -> bytes:
    return f"definition\0{tenant}\0{agent_key}\0{digest}".encode()
