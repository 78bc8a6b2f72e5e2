"""Finds the proxy that the environment names for an address."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit


def find_proxy_address(url: str, env: Mapping[str, str]) -> str:
    """Return what HTTPS_PROXY, HTTP_PROXY or ALL_PROXY says; empty for this machine and names in NO_PROXY."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host == "localhost" or _is_loopback(host) or _is_excluded(host, parts.port, _read(env, "no_proxy")):
        return ""
    return _read(env, f"{parts.scheme}_proxy") or _read(env, "all_proxy")


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
