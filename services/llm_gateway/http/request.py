"""One POST as bytes, and its destination."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from services.llm_gateway.providers.route import DIRECT, Route

_KEPT = "/%:@!$&'()*+,;=~"
"""Unescaped characters of a path (RFC 3986, pchar)."""

_KEPT_IN_QUERY = _KEPT + "?"

_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""Valid header values (RFC 9110, 5.5); a line break would begin another header."""


class Origin(NamedTuple):
    host: str
    port: int
    is_tls: bool
    route: Route = DIRECT

    @property
    def bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        host = self.bracketed_host
        return host if self.port == _default_port(self.is_tls) else f"{host}:{self.port}"


def split_url(url: str, route: Route = DIRECT) -> tuple[Origin, str]:
    """Split an address into origin and path with query.

    Raises:
        ValueError: It has no host.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = host if host.isascii() else host.encode("idna").decode()
    if not host:
        raise ValueError("no host")
    is_tls = parts.scheme == "https"
    path = quote(parts.path or "/", safe=_KEPT)
    if parts.query:
        path += "?" + quote(parts.query, safe=_KEPT_IN_QUERY)
    return Origin(host, parts.port or _default_port(is_tls), is_tls, route), path


def encode_post(origin: Origin, path: str, headers: Mapping[str, str], body: bytes) -> tuple[bytes, bytes]:
    """Encode head and body separately, so that a large body is not copied.

    Raises:
        ValueError: A header's value has invalid characters.
    """
    given = {name.lower() for name in headers}
    defaults = {
        "Host": origin.authority,
        "User-Agent": "headrace",
        "Accept": "text/event-stream",
        # Compression would delay parts of a stream.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    proxy = origin.route.proxy
    if proxy is not None and not origin.is_tls:
        # A proxy forwards requests for http:// itself and opens tunnels only for https:// (RFC 9112, 3.2.2).
        path = f"http://{origin.authority}{path}"
        if proxy.authorization:
            defaults["Proxy-Authorization"] = proxy.authorization
    fields = {name: value for name, value in defaults.items() if name.lower() not in given} | dict(headers)
    if bad := [name for name, value in fields.items() if not _FIELD_VALUE.fullmatch(value)]:
        raise ValueError(f"characters that no header may have: {bad}")
    lines = (f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", "")
    return "\r\n".join(lines).encode("latin-1"), body


def _default_port(is_tls: bool) -> int:
    return 443 if is_tls else 80
