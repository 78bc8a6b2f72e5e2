"""The route to a provider: directly or through a proxy, from its setting or the environment, and the TLS files."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
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
    """Return the proxy from HTTPS_PROXY, HTTP_PROXY or ALL_PROXY; None for this machine and names in NO_PROXY.

    Raises:
        ValueError: The variable is not an address.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host == "localhost" or _is_loopback(host) or _is_excluded(host, parts.port, _read(env, "no_proxy")):
        return None
    address = _read(env, f"{parts.scheme}_proxy") or _read(env, "all_proxy")
    return parse_proxy(address) if address else None


def _read(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _is_excluded(host: str, port: int | None, no_proxy: str) -> bool:
    """Return whether a comma-separated entry is `*`, the host, a parent domain, or a network that contains its
    address."""
    for entry in (entry.strip().lower() for entry in no_proxy.split(",")):
        name, _, entry_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        if entry_port and entry_port != str(port):
            continue
        name = name.removeprefix("*").lstrip(".")
        if entry == "*" or (name and (host == name or host.endswith(f".{name}"))) or _holds(entry, host):
            return True
    return False


def _holds(network: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


@lru_cache(maxsize=256)  # called for each model call; there are few provider hosts
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
