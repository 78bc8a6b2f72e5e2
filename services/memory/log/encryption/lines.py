"""Encrypted lines of a log: `{"_n":…,"_encrypted":"…","_crc":"…"}`, the checksum being that of what stands in the file.

What is encrypted is the line without its checksum. It can be decrypted as the line of that number and chat alone.
"""

from __future__ import annotations

import msgspec

from services.memory.encryption.envelope import is_encrypted_line, parse_line
from services.memory.encryption.keyring import Keyring
from services.memory.log.checksums import add_checksum, remove_checksum


class _Numbered(msgspec.Struct, gc=False):
    n: int = msgspec.field(name="_n")


_NUMBERED = msgspec.json.Decoder(_Numbered)


def encrypt_text(chat_id: str, n: int, text: bytes, keys: Keyring, tenant: str) -> bytes:
    """Encrypt a line's text, without checksum and line break."""
    return keys.encrypt_line(tenant, _make_context(chat_id), n, text)


def decrypt_text(chat_id: str, text: bytes, keys: Keyring) -> bytes:
    """Return a line's text, without its line break, as it was before encryption, and without its checksum.

    Raises:
        ValueError: It is not what was written.
        KeyUnavailable, Overloaded: Its key cannot be had.
    """
    text = remove_checksum(text)
    return keys.decrypt_line(_make_context(chat_id), text) if is_encrypted_line(text) else text


def decrypt_log(chat_id: str, log: bytes, keys: Keyring) -> bytes:
    """Return a log as it would stand without encryption; lines that are not what was written stay as they are. Raises
    KeyUnavailable, Overloaded."""
    return b"\n".join(_decrypt_line(chat_id, text, keys) for text in log.split(b"\n"))


def encrypt_log(chat_id: str, log: bytes, keys: Keyring, tenant: str) -> bytes:
    """Return a log with its lines as they would be written now; what is no line that was written stays as it is.

    Raises KeyUnavailable, Overloaded.
    """
    return b"\n".join(_encrypt_line(chat_id, text, keys, tenant) for text in log.split(b"\n"))


def name_older_log(chat_id: str) -> bytes:
    """Return what the log that another one has replaced is encrypted as, whole."""
    return b"older log\0" + chat_id.encode()


def is_current_line(text: bytes, keys: Keyring, tenant: str) -> bool:
    """Return whether a line stands as it would be written now."""
    if not is_encrypted_line(text):
        return not keys.encrypts
    try:
        return keys.is_current(tenant, parse_line(remove_checksum(text))[1])
    except ValueError:
        return False


def _decrypt_line(chat_id: str, text: bytes, keys: Keyring) -> bytes:
    if not is_encrypted_line(text):
        return text
    try:
        return add_checksum(decrypt_text(chat_id, text, keys))
    except ValueError:
        return text


def _encrypt_line(chat_id: str, text: bytes, keys: Keyring, tenant: str) -> bytes:
    if is_current_line(text, keys, tenant):
        return text
    try:
        plain = decrypt_text(chat_id, text, keys)
        n = _NUMBERED.decode(plain).n
    except (ValueError, RecursionError):
        return text
    return add_checksum(encrypt_text(chat_id, n, plain, keys, tenant) if keys.encrypts else plain)


def _make_context(chat_id: str) -> bytes:
    return b"line\0" + chat_id.encode()
