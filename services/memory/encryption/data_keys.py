"""Stored data keys: one JSON object each, with the key wrapped by a master key."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Protocol

import msgspec

from services.runtime.clock import now_ms

KEY_BYTES = 32
PLAIN = "plain"
"""The goal that nothing stored is encrypted."""

AUTHENTICATED = "authenticated"
"""Prefix of goals under which the lines of chats are sealed (log/sealing.py)."""

TENANT_BYTES = 8


class DataKey(msgspec.Struct, frozen=True, rename="camel"):
    key_id: str
    """Hex digits; the first half derives from the tenant's name, the second is random."""
    tenant: str
    version: int
    """Number among the tenant's keys, from 1; the newest encrypts new data."""
    created_at: int
    """Unix milliseconds."""
    wrapped: str
    """The key in the form wrapped by its master key, in base64."""

    @property
    def wrapped_bytes(self) -> bytes:
        return base64.b64decode(self.wrapped)


class DataKeys(Protocol):
    """The stored data keys of all tenants. Everything blocks."""

    def list_all(self) -> list[DataKey]: ...

    def add(self, key: DataKey) -> bool:
        """Store a key, on disk on return; False if the tenant already has one of that version."""
        ...

    def read_goal(self) -> str:
        """Return the last goal (Keyring.goal) that all stored data has reached; empty: none."""
        ...

    def write_goal(self, goal: str) -> None: ...


def make_data_key(tenant: str, version: int, wrapped: bytes) -> DataKey:
    key_id = find_tenant_mark(tenant) + secrets.token_bytes(16 - TENANT_BYTES)
    return DataKey(key_id.hex(), tenant, version, now_ms(), base64.b64encode(wrapped).decode())


def find_tenant_mark(tenant: str) -> bytes:
    """Return the first half of the tenant's key ids, which identifies its data without any of the keys."""
    return hashlib.sha256(b"headrace tenant " + tenant.encode()).digest()[:TENANT_BYTES]


_DECODER = msgspec.json.Decoder(DataKey)


def encode_data_key(key: DataKey) -> bytes:
    return msgspec.json.encode(key) + b"\n"


def decode_data_key(data: bytes) -> DataKey:
    """Raises ValueError if the data is not a key."""
    return _DECODER.decode(data)
