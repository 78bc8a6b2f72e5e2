"""The form of encrypted data: a mark, the data key's id, a nonce, and what AES-GCM makes of the text.

In a line of a file it stands in JSON, so that a log has a line of JSON for each of its lines, in columns of text as
base64. The mark begins with NUL, which is the first byte of no JSON, MIME type or definition.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

MARK = b"\0H1"
"""Also a whole number of base64's groups, so that its text is the first of every encrypted text."""

KEY_ID_BYTES, NONCE_BYTES, TAG_BYTES = 16, 12, 16
HEAD_BYTES = len(MARK) + KEY_ID_BYTES

_HEAD_CHARS = 28
"""Characters of base64 that a mark and a key id are in."""

_TEXT_MARK = "\x1a" + base64.b64encode(MARK).decode()
"""Titles have no control characters, names fewer of any, and JSON begins with others."""

_LINE_HEAD_BYTES = 64
"""More than comes before the base64 of a line."""

_START, _MIDDLE, _SEALED, _END = b'{"_n":', b',"_encrypted":"', b',"_sealed":"', b'"}'


class _EncryptedLine(msgspec.Struct, gc=False):
    n: int = msgspec.field(name="_n")
    data: bytes = msgspec.field(default=b"", name="_encrypted")
    sealed: bytes = msgspec.field(default=b"", name="_sealed")


_LINE = msgspec.json.Decoder(_EncryptedLine)
"""Its base64 takes half the time of binascii's, which would be most of what a line of a chat costs (msgspec 0.22)."""


class WrongCiphertext(ValueError):
    """Encrypted data is not what was written in this place."""


def is_encrypted(data: bytes) -> bool:
    return data.startswith(MARK)


def get_key_id(data: bytes) -> bytes:
    """Return the id of the key that encrypted data names."""
    return data[len(MARK) : HEAD_BYTES]


def is_encrypted_line(line: bytes) -> bool:
    """Return whether a line, with or without its checksum, holds encrypted data."""
    return line.startswith(_START) and (line.find(_MIDDLE, 0, _LINE_HEAD_BYTES) > 0 or is_sealed_line(line))


def is_sealed_line(line: bytes) -> bool:
    """Return whether a line holds encrypted data that says which line is before it."""
    return line.startswith(_START) and line.find(_SEALED, 0, _LINE_HEAD_BYTES) > 0


def format_line(n: int, data: bytes, *, is_sealed: bool = False) -> bytes:
    """Return the line of JSON for encrypted data, without checksum; `n` is 0 where lines have no numbers."""
    middle = _SEALED if is_sealed else _MIDDLE
    return b"".join((_START, b"%d" % n, middle, binascii.b2a_base64(data, newline=False), _END))


def parse_line(line: bytes) -> tuple[int, bytes]:
    """Return what format_line was given. Raises WrongCiphertext."""
    try:
        read = _LINE.decode(line)
    except ValueError as error:
        raise WrongCiphertext from error
    data = read.sealed or read.data
    if not is_encrypted(data):
        raise WrongCiphertext
    return read.n, data


def find_key_id(value: bytes | str) -> bytes | None:
    """Return the id of the key of encrypted data, of a line or a text; None if it is not encrypted. Their first 100
    bytes are enough."""
    if isinstance(value, str):
        return _read_key_id(value[1:].encode("ascii", "replace")) if is_encrypted_text(value) else None
    if is_encrypted_line(value):
        middle = _SEALED if is_sealed_line(value) else _MIDDLE
        return _read_key_id(value[value.index(middle) + len(middle) :])
    return get_key_id(value) if is_encrypted(value) and len(value) >= HEAD_BYTES else None


def _read_key_id(base64_text: bytes) -> bytes | None:
    try:
        data = base64.b64decode(base64_text[:_HEAD_CHARS])
    except ValueError:
        return None
    return get_key_id(data) if is_encrypted(data) and len(data) >= HEAD_BYTES else None


def is_encrypted_text(text: str) -> bool:
    return text.startswith(_TEXT_MARK)


def format_text(data: bytes) -> str:
    return "\x1a" + base64.b64encode(data).decode()


def parse_text(text: str) -> bytes:
    """Return what format_text was given. Raises WrongCiphertext."""
    try:
        return base64.b64decode(text[1:], validate=True)
    except ValueError as error:
        raise WrongCiphertext from error
