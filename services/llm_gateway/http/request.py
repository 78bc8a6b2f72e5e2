"""One POST as bytes, and its destination."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT = "/%:@!$&'()*+,;=~"
"""Unescaped characters of a path (RFC 3986, pchar)."""

_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""Valid header values (RFC 9110, 5.5); a line break would begin another header."""


class Origin(NamedTuple):
    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.is_tls) else f"{host}:{self.port}"


def split_url(url: str) -> tuple[Origin, str]:
    """Split an address into origin and path.

    Raises:
        ValueError: It names no host.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = host if host.isascii() else host.encode("idna").decode()
    if not host:
        raise ValueError("no host")
    is_tls = parts.scheme == "https"
    return Origin(host, parts.port or _default_port(is_tls), is_tls), quote(parts.path or "/", safe=_KEPT)


def encode_post(origin: Origin, path: str, headers: Mapping[str, str], body: bytes) -> tuple[bytes, bytes]:
    """Encode head and body separately, so that a large body is not copied.

    Raises:
        ValueError: A header's value has invalid characters.
    """
    fields = {
        "Host": origin.authority,
        "User-Agent": "headrace",
        "Accept": "text/event-stream",
        # A compressor holds parts of a stream back.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **headers,
        "Content-Length": str(len(body)),
    }
    if bad := [name for name, value in fields.items() if not _FIELD_VALUE.fullmatch(value)]:
        raise ValueError(f"characters that no header may have: {bad}")
    lines = (f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", "")
    return "\r\n".join(lines).encode("latin-1"), body


def _default_port(is_tls: bool) -> int:
    return 443 if is_tls else 80
