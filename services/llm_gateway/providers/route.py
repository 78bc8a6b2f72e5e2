"""The route to a provider: directly or through a proxy, from its setting or the environment, and the TLS files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headrace.tls import Tls
from services.runtime.net.environment_proxy import find_proxy_address

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
    """Parse `http://[user:password@]host[:port]`; `http://` may be missing, as often in environments.

    Raises:
        ValueError: It is not such an address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("a proxy's address is http://[user:password@]host:port")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or PROXY_PORT, authorization)


def find_environment_proxy(url: str, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy from the environment; raises ValueError if the variable is not an address."""
    address = find_proxy_address(url, env)
    return parse_proxy(address) if address else None
