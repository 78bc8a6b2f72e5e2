"""Which proxy leads to a provider, by its setting or the environment's usual variables."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from services.llm_gateway.providers.route import Proxy, parse_proxy

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_environment_proxy(url: str, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names; none for this machine and names in NO_PROXY.

    Raises:
        ValueError: The variable holds no address.
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
    """Whether a comma-separated entry is `*`, the host, a domain above it, or a network that holds its address."""
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


@lru_cache(maxsize=256)  # asked for each call of a model; providers' hosts are few
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
