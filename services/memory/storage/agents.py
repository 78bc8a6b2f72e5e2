"""Versions of agents: what runs are pinned to, each stored once and never changed."""

from __future__ import annotations

import hashlib

import msgspec

SHARED = ""
"""In place of a tenant: the operator's agents, which all tenants have. No tenant's name is empty."""

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
