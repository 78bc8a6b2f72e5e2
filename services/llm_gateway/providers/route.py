"""The way to a provider: directly or through a proxy, and with which TLS files."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headrace.tls import Tls

PROXY_PORT = 80
"""Port of an address without one (RFC 9110, 4.2.1)."""


@dataclass(frozen=True, slots=True)
class Proxy:
    host: str
    port: int

    authorization: str = field(default="", repr=False)
    """Value of `Proxy-Authorization`; empty without credentials."""

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    proxy: Proxy | None = None
    tls: Tls = Tls()


DIRECT = Route()


def parse_proxy(url: str) -> Proxy:
    """Parse `http://[user:password@]host[:port]`, where `http://` may be missing as it often is in environments.

    Raises:
        ValueError: It is no such address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("a proxy's address is http://[user:password@]host:port")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or PROXY_PORT, authorization)
