"""Header blocks of our own ends, and HTTP/2's rules for those of others.

Our own blocks contain each header in full, without table or Huffman codes, and so are cheap to read. The readers return
None for other blocks, which `h2` then reads.

https://www.rfc-editor.org/rfc/rfc7541#section-6, https://www.rfc-editor.org/rfc/rfc9113#section-8.2
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from h2.exceptions import ProtocolError
from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError
from hpack.hpack import Decoder, decode_integer, encode_integer

from services.runtime.calls.metadata import measure_headers
from services.runtime.http2 import limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.runtime.calls.metadata import Headers


NO_TABLE = b"\x20"
"""Prefix of a connection's first block, which announces that we keep no table."""

_LITERAL = 0x10
"""Prefix of a name that no table stores, because ids are always new and credentials secret."""

_KNOWN = {
    (b":method", b"POST"): 0x83,
    (b":scheme", b"http"): 0x86,
    (b":scheme", b"https"): 0x87,
    (b":status", b"200"): 0x88,
}

_BY_CODE = {code: pair for pair, code in _KNOWN.items()}
_ENCODED = {pair: bytes((code,)) for pair, code in _KNOWN.items()}

_LONG = 0x7F
"""Lengths from this one on take several bytes; beyond it, the string has a Huffman code."""

_LENGTHS = [bytes((length,)) for length in range(_LONG)]

_NAME = re.compile(rb"[a-z0-9_.-]+")
_VALUE = re.compile(rb"(?:[!-~](?:[ -~]*[!-~])?)?")

_HTTP = frozenset(
    {
        b"connection",
        b"content-length",
        b"cookie",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Names that HTTP/2 forbids or has rules for."""

_PSEUDO = (b":scheme", b":path", b":authority")

NAMES_KEPT = 1024

_GROWTH_MAX = 12
"""Maximum ratio of a list's size by HPACK's count to its block's: a header of 4 bytes counts as 33, and the few of one
byte as 46."""


def encode_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(
        [_ENCODED.get((name, value)) or _encode_name(name) + _encode_length(value) + value for name, value in headers]
    )


@lru_cache(NAMES_KEPT)
def _encode_name(name: bytes) -> bytes:
    return bytes((_LITERAL,)) + _encode_length(name) + name


def _encode_length(text: bytes) -> bytes:
    return _LENGTHS[len(text)] if len(text) < _LONG else bytes(encode_integer(len(text), 7))


def read_request(block: bytes) -> Headers | None:
    headers = _decode_block(block, limits.HEADERS_BYTES_MAX)
    if not headers or headers[0] != (b":method", b"POST"):
        return None
    if tuple(name for name, _ in headers[1:4]) != _PSEUDO or not headers[2][1]:
        return None
    return headers if _are_plain(headers, 4) else None


def read_answer(block: bytes) -> Headers | None:
    headers = _decode_block(block)
    if not headers or headers[0] != (b":status", b"200"):
        return None
    return headers if _are_plain(headers, 1) else None


def read_trailers(block: bytes) -> Headers | None:
    headers = _decode_block(block)
    return headers if headers is not None and _are_plain(headers, 0) else None


def is_oversized(block: bytes, bytes_max: int) -> bool:
    """Return whether a list of headers encoded by `encode_block` is larger than `bytes_max`, by HPACK's count."""
    if len(block) * _GROWTH_MAX <= bytes_max:
        return False
    if (headers := _decode_block(block)) is not None:
        return measure_headers(headers) > bytes_max
    try:
        Decoder(bytes_max).decode(block, raw=True)
    except OversizedHeaderListError:
        return True
    return False


def _decode_block(block: bytes, bytes_max: int = limits.HEADERS_BYTES_TAKEN_MAX) -> Headers | None:
    headers: Headers = []
    at, end = 0, len(block)
    try:
        while at < end:
            code = block[at]
            if code != _LITERAL:
                headers.append(_BY_CODE[code])
                at += 1
                continue
            length = block[at + 1]
            start = at + 2 + length
            if length >= _LONG:
                return None
            name, length = block[at + 2 : start], block[start]
            start += 1
            if length >= _LONG:
                if length > _LONG:
                    return None
                length, size = decode_integer(block[start - 1 : start + 3], 7)
                start += size - 1
            at = start + length
            headers.append((name, block[start:at]))
    except (IndexError, KeyError, HPACKDecodingError):
        return None
    # HPACK's count of a list; h2 handles lists that are too long.
    is_too_long = end + len(headers) * 32 > bytes_max
    return headers if at == end and not is_too_long else None


def _are_plain(headers: Headers, pseudo: int) -> bool:
    """Return whether HTTP has no rules for any of `headers`; the first `pseudo` names are known."""
    for number, (name, value) in enumerate(headers):
        if not _VALUE.fullmatch(value) or (number >= pseudo and not _is_plain(name)):
            return False
        if name == b"te" and value != b"trailers":
            return False
    return True


@lru_cache(NAMES_KEPT)
def _is_plain(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _HTTP


_FOREIGN_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_FOREIGN_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")

_OF_CONNECTIONS = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})

REQUEST = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED = (b":method", b":scheme", b":path")
RESPONSE = frozenset({b":status"})
TRAILERS = frozenset[bytes]()


def check_headers(headers: Iterable[tuple[bytes, bytes]], pseudo: frozenset[bytes]) -> None:
    """Check a list that may have the pseudo-headers `pseudo`.

    Raises:
        ProtocolError: It breaks a rule.
    """
    seen: dict[bytes, bytes] = {}
    is_pseudo = True
    for name, value in headers:
        if name[:1] == b":":
            if not is_pseudo:
                raise ProtocolError(f"the pseudo-header {name!r} is out of sequence")
            if name not in pseudo or name in seen:
                raise ProtocolError(f"the pseudo-header {name!r} is not defined here, or given twice")
            seen[name] = value
        else:
            is_pseudo = False
            if not _FOREIGN_NAME.fullmatch(name):
                raise ProtocolError(f"the header name {name[:64]!r} is not valid")
            if name in _OF_CONNECTIONS or (name == b"te" and value.lower() != b"trailers"):
                raise ProtocolError(f"the header {name!r} is about a connection")
            if name == b"host" and seen.setdefault(b":authority", value) != value:
                raise ProtocolError("the headers :authority and host differ")
        if not _FOREIGN_VALUE.fullmatch(value):
            raise ProtocolError(f"the value of {name[:64]!r} is not valid")
    if seen.get(b":method") == b"CONNECT":
        if b":scheme" in seen or b":path" in seen:
            raise ProtocolError("CONNECT has neither :scheme nor :path")
    elif pseudo is REQUEST and not all(seen.get(name) for name in _NEEDED):
        raise ProtocolError("a request needs :method, :scheme and :path")
    if pseudo is REQUEST and b":authority" not in seen:
        raise ProtocolError("a request needs :authority or host")
    if pseudo is RESPONSE and not seen:
        raise ProtocolError("a response needs :status")
