"""Reads hosts and networks that an operator opens beside the public web.

Entries are separated by commas: `wiki.corp`, `wiki.corp:8080`, `10.1.2.3:80`, `[fd00::1]:80`, `10.1.0.0/16`; without a
port, any port.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from services.runtime.net.addresses import Address, Network, find_embedded, parse_address


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
