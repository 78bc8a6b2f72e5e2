"""Data that is encrypted whole. Its name, a hash of its content, stays readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring


def encrypt_blob(chat_id: str, blob_id: str, plain: bytes, keys: Keyring, tenant: str) -> bytes:
    return keys.encrypt(tenant, _name_blob(chat_id, blob_id), plain) if keys.encrypts else plain


def decrypt_blob(chat_id: str, blob_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return what was encrypted; where it is not what was written, nothing, which no blob's name is of. Raises
    KeyUnavailable, Overloaded."""
    return decrypt_whole(_name_blob(chat_id, blob_id), stored, keys)


def decrypt_whole(context: bytes, stored: bytes, keys: Keyring) -> bytes:
    """Return what was encrypted for a context; nothing if it is damaged. Raises KeyUnavailable, Overloaded."""
    if not is_encrypted(stored):
        return stored
    try:
        return keys.decrypt(context, stored)
    except WrongCiphertext:
        return b""


def _name_blob(chat_id: str, blob_id: str) -> bytes:
    return f"blob\0{chat_id}\0{blob_id}".encode()
