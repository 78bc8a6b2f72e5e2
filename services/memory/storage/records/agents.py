"""Versions of agents, which runs are pinned to, each stored once and never changed; and tenants' agents in force."""

from __future__ import annotations

import hashlib
import uuid

import msgspec

SHARED = ""
"""In place of a tenant: the operator's agents, which all tenants have. No tenant's name is empty."""

AGENT = "agent"
"""Kind of the records of tenants' agents in force."""

VERSIONS_MAX = 10_000
"""Versions of one agent. Nobody edits a file so often; a tool whose definition is another at each look would."""


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
    """A version with its definition, as exports have it on a line."""

    version: AgentVersion
    definition: str


def encode_version(version: AgentVersion, definition: bytes) -> bytes:
    return msgspec.json.encode(ExportedVersion(version, definition.decode())) + b"\n"


def decode_version(line: bytes) -> tuple[AgentVersion, bytes]:
    """Raises msgspec.DecodeError."""
    exported = msgspec.json.decode(line, type=ExportedVersion)
    return exported.version, exported.definition.encode()


def hash_definition(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()


class StoredAgent(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a tenant's key means now. One that was removed stays for a while, so that all replicas hear of it."""

    tenant: str
    agent_key: str
    version: int
    """Number of changes, which fences those that read an older one."""
    agent_version: int
    """Number among the agent's versions."""
    updated_at: int
    """Unix milliseconds."""
    updated_by: str
    definition: str = ""
    """What an agent file would have; empty: it is removed."""
    revision: int = 0
    """Place of its last change among those of all agents, which the store gives it."""

    @property
    def record_id(self) -> str:
        return find_record_id(self.tenant, self.agent_key)


class AgentUse(msgspec.Struct, frozen=True):
    own: int
    """Agents of the tenant."""
    own_bytes: int
    """Size of their definitions together."""
    everybodys: int
    """Agents of all tenants."""


_DECODER = msgspec.json.Decoder(StoredAgent)


def find_record_id(tenant: str, agent_key: str) -> str:
    """Return the id of an agent's record, a UUID, whatever case its key is written in."""
    digest = hashlib.sha256(f"{tenant}\n{agent_key.casefold()}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16]))


def encode_agent(agent: StoredAgent) -> bytes:
    return msgspec.json.encode(agent) + b"\n"


def decode_agent(data: bytes) -> StoredAgent:
    """Raises msgspec.DecodeError if it is none."""
    return _DECODER.decode(data)
