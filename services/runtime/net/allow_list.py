"""Addresses that may be reached: those of the public web, and the hosts and networks that an operator allows.

EXTRA adds to Python 3.11's tables the entries of IANA's special-purpose registries (2026-11), and addresses that clouds
use.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

EXTRA: tuple[tuple[Network, str], ...] = (
    (IPv4Network("192.0.0.0/24"), "reserved"),
    (IPv4Network("192.31.196.0/24"), "reserved"),
    (IPv4Network("192.52.193.0/24"), "reserved"),
    (IPv4Network("192.88.99.0/24"), "a 6to4 relay"),
    (IPv4Network("192.175.48.0/24"), "reserved"),
    (IPv4Network("168.63.129.16/32"), "a cloud's own service"),
    (IPv6Network("64:ff9b:1::/48"), "a local NAT64 address"),
    (IPv6Network("2001::/23"), "reserved"),  # includes Teredo's prefix, 2001::/32
    (IPv6Network("2001:db8::/32"), "reserved"),
    (IPv6Network("2002::/16"), "a 6to4 address"),
    (IPv6Network("2620:4f:8000::/48"), "reserved"),
    (IPv6Network("3fff::/20"), "reserved"),
)

NAT64 = IPv6Network("64:ff9b::/96")
UNICAST = IPv6Network("2000::/3")

ISATAP = (0x00005EFE, 0x02005EFE)
"""Third quarter of an address that contains an IPv4 address in its last one (RFC 5214)."""


def find_refusal(address: Address) -> str | None:
    """Return why `address` must not be reached; None if it is public."""
    if isinstance(address, IPv6Address):
        if (inner := find_embedded(address)) is not None:
            return find_refusal(inner)
        if address.scope_id or address not in UNICAST:
            return _describe_address(address)
        if (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
            return "an ISATAP address"
    for network, what in EXTRA:
        if address in network:
            return what
    return None if address.is_global and not address.is_multicast else _describe_address(address)


def find_embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a mapped or NAT64 address really reaches."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def parse_address(text: str) -> Address | None:
    """Parse an IP address; None for a name. IPv4 is accepted only in its usual form."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _describe_address(address: Address) -> str:
    kinds = (
        (address.is_unspecified, "unspecified"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.is_reserved, "reserved"),
        (address.is_private, "a private address"),
    )
    return next((name for holds, name in kinds if holds), "not of the public web")


@dataclass(frozen=True, slots=True)
class AllowList:
    hosts: frozenset[tuple[str, int | None]] = frozenset()
    """Port None means any port."""

    networks: tuple[Network, ...] = ()

    def has_host(self, host: str, port: int) -> bool:
        return bool(self.hosts & {(host.rstrip("."), port), (host.rstrip("."), None)})

    def has_address(self, address: Address, port: int) -> bool:
        if self.has_host(str(address), port) or any(address in network for network in self.networks):
            return True
        inner = None if address.version == 4 else find_embedded(address)
        return inner is not None and self.has_address(inner, port)


def parse_allow_list(text: str) -> AllowList:
    """Parse comma-separated entries; without a port, any port is allowed. Forms: `wiki.corp`, `wiki.corp:8080`,
    `10.1.2.3:80`, `[fd00::1]:80`, `10.1.0.0/16`."""
    hosts: set[tuple[str, int | None]] = set()
    networks: list[Network] = []
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        try:
            if "/" in entry:
                networks.append(ipaddress.ip_network(entry))
            else:
                hosts.add(_parse_host(entry))
        except ValueError:
            raise ValueError(f"{entry!r}: expected host, host:port or a network such as 10.1.0.0/16") from None
    return AllowList(frozenset(hosts), tuple(networks))


def _parse_host(entry: str) -> tuple[str, int | None]:
    if address := parse_address(entry.strip("[]")):
        return str(address), None
    name, colon, port = entry.rpartition(":")
    if not colon:
        return entry.rstrip("."), None
    if not name or not 0 < int(port) <= 65535:
        raise ValueError
    address = parse_address(name.strip("[]"))
    return str(address) if address else name.rstrip("."), int(port)
