"""Targets of channels and their addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = str | tuple[str, int]

NETWORK_BITS = 64
"""Leading bits of an IPv6 address that count as one address: its owner controls the rest."""

DNS = "dns:///"

LOCAL = "local:"
"""Prefix of names without a socket: only channels of the server's own process reach them."""


@dataclass(frozen=True, slots=True)
class Target:
    text: str
    path: str
    """Path of a Unix socket, or the whole text of a local name; empty for a host and port."""

    host: str
    port: int
    is_spread: bool
    """Whether calls are spread over all addresses in turn."""

    several: tuple[Target, ...] = ()
    """The targets of a list; empty for a single one."""

    @property
    def is_local(self) -> bool:
        """Whether the target, or a part of it, is reached without a socket."""
        return self.path.startswith(LOCAL) or any(part.is_local for part in self.several)

    @property
    def authority(self) -> str:
        if self.several:
            return self.several[0].authority
        return "localhost" if self.path else self.text.removeprefix(DNS)

    def get_certificate_name(self, address: Address) -> str:
        if self.several and not isinstance(address, str):
            return address[0]
        return self.host or "localhost"


def parse_target(target: str) -> Target:
    """Parse host:port, unix:/path, local:name, dns:///host:port for all replicas of a name, or a list of the others.

    Raises:
        ValueError: The text has none of these forms.
    """
    if "," in target:
        several = tuple(parse_target(part) for part in target.split(","))
        if any(part.is_spread for part in several):
            raise ValueError(f"target {target!r}: expected host:port or unix:/path in a list")
        return Target(target, "", "", 0, is_spread=True, several=several)
    if target.startswith(LOCAL) and target != LOCAL:
        return Target(target, target, "", 0, is_spread=False)
    if target.startswith("unix:"):
        return Target(target, target.removeprefix("unix:").removeprefix("//"), "", 0, is_spread=False)
    name = target.removeprefix(DNS)
    host, separator, port = name.rpartition(":")
    if not separator or not port.isdecimal() or not host:
        raise ValueError(f"target {target!r}: expected host:port, unix:/path or dns:///host:port")
    return Target(target, "", host.strip("[]"), int(port), is_spread=target.startswith(DNS))


def describe_address(address: Address) -> str:
    """Return an address in the form that servers and channels accept."""
    if isinstance(address, str):
        return address if address.startswith(LOCAL) else f"unix:{address}"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve_target(target: Target) -> list[Address]:
    """Return the target's addresses; raises OSError if the name cannot be resolved."""
    if target.several:
        return [address for part in target.several for address in await resolve_target(part)]
    if target.path:
        return [target.path]
    if not target.is_spread:
        return [(target.host, target.port)]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    # With both families, a pod would get twice its share.
    family = found[0][0]
    return sorted({(str(entry[4][0]), int(entry[4][1])) for entry in found if entry[0] == family})


def find_network(host: str) -> str:
    """Return the network that counts as one peer address."""
    parsed = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))
