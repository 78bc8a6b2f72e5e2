"""Connects to the very addresses that were checked: the name stays for Host and TLS, nobody resolves it again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from services.runtime.net.addresses import Address, find_refusal, parse_address
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import Target, TargetRefused

Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Resolves a name to its addresses, in the order to try them; raises OSError."""

AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""An address as from getaddrinfo: family, kind, protocol, name, socket address."""

ADDRESSES_MAX = 16

CONNECT_S = 10.0


async def resolve_name(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in infos]


async def checked_addresses(target: Target, resolve: Resolve, allow: AllowList) -> tuple[Address, ...]:
    """Returns the target's addresses; one bad address refuses all, because it may be first in the next answer.

    Raises:
        TargetRefused: The name has no address, or one that must not be reached.
    """
    if target.address is not None:
        addresses = [target.address]
    else:
        try:
            texts = await resolve(target.host)
        except (OSError, UnicodeError) as error:
            raise TargetRefused(f"{target.host!r} has no address") from error
        # A scope (%eth0) makes ipaddress keep it, and then the address is refused.
        addresses = [address for text in texts[:ADDRESSES_MAX] if (address := parse_address(text))]
    if not addresses:
        raise TargetRefused(f"{target.host!r} has no address")
    if not allow.has_host(target.host, target.port):
        for address in addresses:
            why = find_refusal(address)
            if why and not allow.has_address(address, target.port):
                raise TargetRefused(f"{target.host!r} must not be reached from here: its address is {why}")
    return tuple(dict.fromkeys(addresses))


def pinned_session(addresses: tuple[Address, ...]) -> aiohttp.ClientSession:
    """Opens a session that reaches only `addresses`, for one request; the caller closes it."""
    connector = aiohttp.TCPConnector(
        resolver=_PinnedResolver(addresses),
        use_dns_cache=False,
        force_close=True,
        socket_factory=_make_socket_factory(addresses),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # aiohttp unpacks a piece whole, however large that makes it
        trust_env=False,  # a proxy would resolve the name again, by itself
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
    )


@dataclass(frozen=True, slots=True)
class _PinnedResolver(AbstractResolver):
    addresses: tuple[Address, ...]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


def _make_socket_factory(addresses: tuple[Address, ...]) -> Callable[[AddressInfo], socket.socket]:
    # This is the last check before the network that a socket is for one of `addresses`.
    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, sockaddr = info
        if parse_address(str(sockaddr[0])) not in addresses:
            raise OSError("an address that was not checked")
        new_socket = socket.socket(family, kind, protocol)
        new_socket.setblocking(False)
        return new_socket

    return make
