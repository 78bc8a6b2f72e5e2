"""Tenants' active agents."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.records.kind import Kind, Records
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.sql import StatementRunner


class StoredAgent(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The current state of a tenant's agent key. A removed agent is kept for a while, so that all replicas learn of
    it."""

    tenant: str
    agent_key: str
    version: int
    """Changes with each write, so that a writer that read an older one is refused."""
    agent_version: int
    """Number among the agent's versions."""
    updated_at: int
    """Unix milliseconds."""
    updated_by: str
    definition: str = ""
    """The content of an agent file; empty if it is removed."""
    revision: int = 0
    """Position of its last change among those of all agents, assigned by the store."""

    @property
    def record_id(self) -> str:
        return find_record_id(self.tenant, self.agent_key)


class AgentUse(msgspec.Struct, frozen=True):
    own: int
    """Agents of the tenant."""
    own_bytes: int
    """Size of their definitions together, in bytes."""
    everybodys: int
    """Agents of all tenants."""


def find_record_id(tenant: str, agent_key: str) -> str:
    """Return the id of an agent's record, a UUID, independent of its key's case."""
    digest = hashlib.sha256(f"{tenant}\n{agent_key.casefold()}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16]))


def _remove_erased(agent: StoredAgent) -> StoredAgent:
    return replace(agent, definition="", updated_at=now_ms(), updated_by="") if agent.definition else agent


AGENTS = Kind(
    "agent",
    StoredAgent,
    "tenant_agents",
    {
        "record_id text": lambda agent: agent.record_id,
        "tenant text": lambda agent: agent.tenant,
        "bytes bigint": lambda agent: len(agent.definition.encode()),
        "updated_at bigint": lambda agent: agent.updated_at,
    },
    order="revision",
    counter="tenant_agent_revision",
    get_tenant=lambda agent: agent.tenant,
    plural="agents",
    get_author=lambda agent: agent.updated_by,
    erase=_remove_erased,
)

_OWN_USE = """
count(CASE WHEN tenant = $1 THEN 1 END), coalesce(sum(CASE WHEN tenant = $1 THEN bytes ELSE 0 END), 0), count(*)
"""


class StoredAgents(Records[StoredAgent]):
    """Tenants' active agents, and recently removed ones."""

    def __init__(self, sql: StatementRunner, keys: Keyring = NO_KEYS) -> None:
        super().__init__(sql, AGENTS, keys)

    async def find_agent(self, tenant: str, agent_key: str) -> StoredAgent | None:
        """Return the agent, independent of its key's case; None without one."""
        return await self.find(find_record_id(tenant, agent_key))

    async def forget(self, before: int) -> None:
        """Delete the records of agents removed before a time, in Unix milliseconds."""
        await self.delete_where("bytes = 0 AND updated_at < $1", before)

    async def measure(self, tenant: str) -> AgentUse:
        """Return the usage by agents that are not removed."""
        return AgentUse(*map(int, (await self.fetch(_OWN_USE, "bytes > 0", tenant))[0]))
