"""Data keys as they are stored: one JSON object each, with the key wrapped by a master key."""

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
"""Begins the goals whose lines of chats are sealed (log/sealing.py)."""

TENANT_BYTES = 8


class DataKey(msgspec.Struct, frozen=True, rename="camel"):
    key_id: str
    """Hex digits; the first half is made of the tenant's name, the second one is random."""
    tenant: str
    version: int
    """Number among the tenant's keys, from 1; what is written is encrypted with the newest."""
    created_at: int
    """Unix milliseconds."""
    wrapped: str
    """The key as its master key has wrapped it, in base64."""

    @property
    def wrapped_bytes(self) -> bytes:
        return base64.b64decode(self.wrapped)


class DataKeys(Protocol):
    """The stored data keys of all tenants. Everything blocks."""

    def list_all(self) -> list[DataKey]: ...

    def add(self, key: DataKey) -> bool:
        """Store a key, on disk when this returns; False if its tenant has one of that version."""
        ...

    def read_goal(self) -> str:
        """Return what all that is stored was last brought to, as Keyring.goal; empty: nothing was."""
        ...

    def write_goal(self, goal: str) -> None: ...


def make_data_key(tenant: str, version: int, wrapped: bytes) -> DataKey:
    key_id = find_tenant_mark(tenant) + secrets.token_bytes(16 - TENANT_BYTES)
    return DataKey(key_id.hex(), tenant, version, now_ms(), base64.b64encode(wrapped).decode())


def find_tenant_mark(tenant: str) -> bytes:
    """Return the first half of the ids of a tenant's keys, by which its data is known without any of them."""
    return hashlib.sha256(b"headrace tenant " + tenant.encode()).digest()[:TENANT_BYTES]


_DECODER = msgspec.json.Decoder(DataKey)


def encode_data_key(key: DataKey) -> bytes:
    return msgspec.json.encode(key) + b"\n"


def decode_data_key(data: bytes) -> DataKey:
    """Raises ValueError if it is none."""
    return _DECODER.decode(data)
