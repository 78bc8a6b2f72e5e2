"""Records, each one object of JSON, and lines without numbers: encrypted they are an object of JSON, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted, is_encrypted_line, parse_line
from services.memory.encryption.keyring import make_damaged_error

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring


def encrypt_record(kind: str, record_id: str, data: bytes, keys: Keyring, tenant: str) -> bytes:
    """Return what is stored of a record whose JSON is `data`."""
    if not keys.encrypts:
        return data
    return keys.encrypt_line(tenant, _name_record(kind, record_id), 0, data) + b"\n"


def decrypt_record(kind: str, record_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return a record's JSON.

    Raises:
        WrongCiphertext: It is not what was written.
        KeyUnavailable, Overloaded: Its key cannot be had.
    """
    if not is_encrypted_line(stored):
        return stored
    return keys.decrypt_line(_name_record(kind, record_id), stored.rstrip(b"\n"))


def read_record(kind: str, record_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return a record's JSON. Raises LogDamaged where it is not what was written, KeyUnavailable, Overloaded."""
    try:
        return decrypt_record(kind, record_id, stored, keys)
    except WrongCiphertext as error:
        raise make_damaged_error(_name_record(kind, record_id)) from error


def is_current_record(stored: bytes, keys: Keyring, tenant: str) -> bool:
    """Return whether a record stands as it would be written now."""
    if not is_encrypted_line(stored):
        return not keys.encrypts
    try:
        return keys.is_current(tenant, parse_line(stored.rstrip(b"\n"))[1])
    except ValueError:
        return False


def _name_record(kind: str, record_id: str) -> bytes:
    return f"record\0{kind}\0{record_id}".encode()


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
