"""Records, each a JSON object, and lines without numbers; in encrypted form they are JSON objects as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted, is_encrypted_line, parse_line
from services.memory.encryption.keyring import make_damaged_error

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring


def encrypt_record(kind: str, record_id: str, data: bytes, keys: Keyring, tenant: str) -> bytes:
    """Return the stored form of a record with the JSON `data`."""
    if not keys.encrypts:
        return data
    return keys.encrypt_line(tenant, _name_record(kind, record_id), 0, data) + b"\n"


def decrypt_record(kind: str, record_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return a record's JSON.

    Raises:
        WrongCiphertext: It has changed since it was written.
        KeyUnavailable, Overloaded: Its key is not available.
    """
    if not is_encrypted_line(stored):
        return stored
    return keys.decrypt_line(_name_record(kind, record_id), stored.rstrip(b"\n"))


def read_record(kind: str, record_id: str, stored: bytes, keys: Keyring) -> bytes:
    """Return a record's JSON. Raises LogDamaged if it has changed since it was written, KeyUnavailable, Overloaded."""
    try:
        return decrypt_record(kind, record_id, stored, keys)
    except WrongCiphertext as error:
        raise make_damaged_error(_name_record(kind, record_id)) from error


def is_current_record(stored: bytes, keys: Keyring, tenant: str) -> bool:
    """Return whether a record has the form in which it would be written now."""
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
    """Return the decrypted blob; empty if it has changed since it was written, which matches no blob's name. Raises
    KeyUnavailable, Overloaded."""
    return decrypt_whole(_name_blob(chat_id, blob_id), stored, keys)


def decrypt_whole(context: bytes, stored: bytes, keys: Keyring) -> bytes:
    """Return data decrypted for its context; empty if it is damaged. Raises KeyUnavailable, Overloaded."""
    if not is_encrypted(stored):
        return stored
    try:
        return keys.decrypt(context, stored)
    except WrongCiphertext:
        return b""


def _name_blob(chat_id: str, blob_id: str) -> bytes:
    return f"blob\0{chat_id}\0{blob_id}".encode()
