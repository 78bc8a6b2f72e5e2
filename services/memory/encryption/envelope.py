"""The format of encrypted data: a mark, the data key's id, a nonce, and AES-GCM's output.

In files each encrypted line is wrapped in JSON, so that every line of a log is JSON; in text columns it is base64. The
mark begins with NUL, which begins no JSON, MIME type or definition.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

MARK = b"\0H1"
"""The mark, sized in whole base64 groups, so that its text begins every encrypted text."""

KEY_ID_BYTES, NONCE_BYTES, TAG_BYTES = 16, 12, 16
HEAD_BYTES = len(MARK) + KEY_ID_BYTES

_HEAD_CHARS = 28
"""Base64 characters that hold the mark and the key id."""

_TEXT_MARK = "\x1a" + base64.b64encode(MARK).decode()
"""First character of encrypted texts: titles have no control characters, names not this one, and JSON begins
differently."""

_LINE_HEAD_BYTES = 64
"""Upper bound of the bytes before a line's base64."""

_START, _MIDDLE, _SEALED, _END = b'{"_n":', b',"_encrypted":"', b',"_sealed":"', b'"}'


class _EncryptedLine(msgspec.Struct, gc=False):
    n: int = msgspec.field(name="_n")
    data: bytes = msgspec.field(default=b"", name="_encrypted")
    sealed: bytes = msgspec.field(default=b"", name="_sealed")


_LINE = msgspec.json.Decoder(_EncryptedLine)
"""Its base64 takes half the time of binascii's, which would be most of the cost of a chat's line (msgspec 0.22)."""


class WrongCiphertext(ValueError):
    """Encrypted data is not what was written in this place."""


def is_encrypted(data: bytes) -> bool:
    return data.startswith(MARK)


def get_key_id(data: bytes) -> bytes:
    """Return the key id in encrypted data."""
    return data[len(MARK) : HEAD_BYTES]


def is_encrypted_line(line: bytes) -> bool:
    """Return whether a line, with or without its checksum, holds encrypted data."""
    return line.startswith(_START) and (line.find(_MIDDLE, 0, _LINE_HEAD_BYTES) > 0 or is_sealed_line(line))


def is_sealed_line(line: bytes) -> bool:
    """Return whether a line holds encrypted data bound to the line before it."""
    return line.startswith(_START) and line.find(_SEALED, 0, _LINE_HEAD_BYTES) > 0


def format_line(n: int, data: bytes, *, is_sealed: bool = False) -> bytes:
    """Return the JSON line for encrypted data, without checksum; `n` is 0 if lines have no numbers."""
    middle = _SEALED if is_sealed else _MIDDLE
    return b"".join((_START, b"%d" % n, middle, binascii.b2a_base64(data, newline=False), _END))


def parse_line(line: bytes) -> tuple[int, bytes]:
    """Return the arguments of format_line. Raises WrongCiphertext."""
    try:
        read = _LINE.decode(line)
    except ValueError as error:
        raise WrongCiphertext from error
    data = read.sealed or read.data
    if not is_encrypted(data):
        raise WrongCiphertext
    return read.n, data


def find_key_id(value: bytes | str) -> bytes | None:
    """Return the key id of encrypted data, a line or a text; None if it is not encrypted. The first 100 bytes are
    enough."""
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
    """Return the argument of format_text. Raises WrongCiphertext."""
    try:
        return base64.b64decode(text[1:], validate=True)
    except ValueError as error:
        raise WrongCiphertext from error
