"""Blobs and definitions, which are encrypted whole: the names they stand under, made of their contents, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted
from services.memory.storage.records.agents import SHARED

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring


def encrypt_blob(chat_id: str, blob_id: str, plain: bytes, keys: Keyring, tenant: str) -> bytes:
    return keys.encrypt(tenant, _name_blob(chat_id, blob_id), plain) if keys.encrypts else plain


def decrypt_blob(chat_id: str, blob_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return what was encrypted; where it is not what was written, nothing, which no blob's name is of. Raises
    KeyUnavailable, Overloaded."""
    return _decrypt(_name_blob(chat_id, blob_id), stored, keys)


def encrypt_definition(tenant: str, agent_key: str, digest: str, plain: bytes, keys: Keyring) -> bytes:
    """Encrypt a tenant's definition; the operator's are in files of the operator's as they are."""
    if not keys.encrypts or tenant == SHARED:
        return plain
    return keys.encrypt(tenant, _name_definition(tenant, agent_key, digest), plain)


def decrypt_definition(tenant: str, agent_key: str, digest: str, stored: bytes, keys: Keyring) -> bytes:
    """Return what was encrypted, as decrypt_blob does."""
    return _decrypt(_name_definition(tenant, agent_key, digest), stored, keys)


def _decrypt(context: bytes, stored: bytes, keys: Keyring) -> bytes:
    if not is_encrypted(stored):
        return stored
    try:
        return keys.decrypt(context, stored)
    except WrongCiphertext:
        return b""


def _name_blob(chat_id: str, blob_id: str) -> bytes:
    return f"blob\0{chat_id}\0{blob_id}".encode()


def _name_definition(tenant: str, agent_key: str, digest: str) -> bytes:
    return f"definition\0{tenant}\0{agent_key}\0{digest}".encode()
