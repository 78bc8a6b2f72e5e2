"""Metadata, timeouts and statuses of calls as HTTP/2 headers.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import grpc

STATUS_MESSAGE_BYTES_MAX = 2 * 1024

Pairs: TypeAlias = list[tuple[str, str | bytes]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

TIMEOUT = b"grpc-timeout"

RESERVED = frozenset({b"te", b"content-type", b"user-agent", TIMEOUT, b"grpc-encoding", b"grpc-accept-encoding"})
"""gRPC's own headers, which are not metadata."""

KEYS_MAX = 256
"""Maximum cached keys in their other form; calls of the suite have a dozen."""

_KEY = re.compile(r"[0-9a-z_.-]+")
_OUTER_SPACE = re.compile(r"^ | $")
"""Leading or trailing space, for which a peer may end the connection."""

_HALF_BYTE = re.compile(r"%.?$")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

# Characters that a status message leaves unchanged: printable ASCII except the percent sign.
_MESSAGE_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def measure_headers(headers: Headers) -> int:
    """Return a list's size in bytes by HPACK's count, which adds 32 for each header (RFC 7541, 4.1)."""
    return sum(map(len, chain.from_iterable(headers))) + 32 * len(headers)


def to_headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> Headers:
    """Return metadata as headers; raises ValueError if HTTP/2 cannot carry them."""
    headers: Headers = []
    for key, value in metadata or ():
        name, is_binary = _encode_key(key)
        if is_binary:
            headers.append((name, b64encode(value if isinstance(value, bytes) else value.encode()).rstrip(b"=")))
            continue
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if not (text.isascii() and text.isprintable()):
            raise ValueError(f"metadata {key!r}: expected printable ASCII; other values need a key that ends with -bin")
        headers.append((name, text.strip(" ").encode()))
    return headers


@lru_cache(maxsize=KEYS_MAX)
def _encode_key(key: str) -> tuple[bytes, bool]:
    """Return the header's name, and whether its values are binary."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"metadata key {key!r}: expected lower-case letters, digits, _ . -")
    return key.encode(), key.endswith("-bin")


def from_headers(headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return the metadata among `headers`, without binary values that are not base64."""
    pairs: Pairs = []
    for key, value in headers:
        name, is_binary = _decode_key(key)
        if not name:
            continue
        if not is_binary:
            pairs.append((name, value.decode("latin-1")))
            continue
        for part in value.split(b","):  # a sender may join several values of one key
            try:
                pairs.append((name, b64decode(part + b"=" * (-len(part) % 4), validate=True)))
            except ValueError:
                continue
    return pairs


@lru_cache(maxsize=KEYS_MAX)
def _decode_key(key: bytes) -> tuple[str, bool]:
    """Return the metadata's key, empty for other headers, and whether its values are binary."""
    if key in RESERVED or key[:1] == b":":
        return "", False
    name = key.decode("latin-1")
    return name, name.endswith("-bin")


def to_timeout(timeout_s: float) -> bytes:
    """Return a timeout's header, in the finest unit of at most eight digits."""
    for unit, ticks in ((b"u", 1e6), (b"m", 1e3), (b"S", 1.0), (b"M", 1 / 60)):
        if timeout_s * ticks < 1e8:
            return b"%d%b" % (max(int(timeout_s * ticks), 0), unit)
    return b"99999999H"


def from_timeout(text: bytes) -> float | None:
    """Return seconds; None if `text` is not a timeout."""
    match = _TIMEOUT.fullmatch(text)
    return float(match[1]) * _UNIT_S[match[2]] if match else None


def to_message(text: str) -> bytes:
    # Each character takes at least a byte, so this cut removes only text that the next one would remove.
    header = quote(text[:STATUS_MESSAGE_BYTES_MAX], safe=_MESSAGE_SAFE, errors="replace")
    cut = _HALF_BYTE.sub("", header[:STATUS_MESSAGE_BYTES_MAX])
    return _OUTER_SPACE.sub("%20", cut).encode()


def from_message(header: bytes) -> str:
    return unquote(header.decode("latin-1"), errors="replace")


def to_pairs(metadata: Any) -> Pairs:
    return [(key, value) for key, value in metadata or ()]


CODES = {b"%d" % code.value[0]: code for code in grpc.StatusCode}
STATUS, MESSAGE = b"grpc-status", b"grpc-message"

PUSHBACK = b"grpc-retry-pushback-ms"
"""Trailer with which a server asks the client to try another one at once, if the value is 0
(https://github.com/grpc/proposal/blob/master/A6-client-retries.md)."""


@dataclass(frozen=True, slots=True)
class Status:
    code: grpc.StatusCode
    details: str = ""
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    is_refused: bool = False
    """Whether the server did not begin the call, so that it may be repeated."""

    is_local: bool = False


OK = Status(grpc.StatusCode.OK)


@dataclass(slots=True)
class ServerStatus:
    """A status that the handler may change until it is sent."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailing: Pairs = field(default_factory=list[tuple[str, str | bytes]])

    def to_trailers(self) -> Headers:
        trailers: Headers = [(STATUS, b"%d" % self.code.value[0])]
        if self.details:
            trailers.append((MESSAGE, to_message(self.details)))
        return trailers + to_headers(self.trailing)


def from_trailers(headers: Headers, *, are_all: bool = False) -> Status | None:
    """Return the status in trailers, if any; with `are_all` the answer has no other headers."""
    trailers = dict(headers)
    if STATUS not in trailers:
        return None
    metadata = [pair for pair in from_headers(headers) if pair[0] not in ("grpc-status", "grpc-message")]
    code = CODES.get(trailers[STATUS], grpc.StatusCode.UNKNOWN)
    is_refused = are_all and code is grpc.StatusCode.UNAVAILABLE and trailers.get(PUSHBACK) == b"0"
    return Status(code, from_message(trailers.get(MESSAGE, b"")), tuple(metadata), is_refused)
