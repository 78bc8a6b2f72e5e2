"""HTTP requests to checked addresses only, with answers of bounded size.

The host's name is kept for Host and TLS; it is not resolved again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from services.runtime.net.allow_list import Address, parse_address

AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""An address as from getaddrinfo: family, kind, protocol, name, socket address."""

CONNECT_S = 10.0


def pinned_session(addresses: tuple[Address, ...], cookies: aiohttp.CookieJar | None = None) -> aiohttp.ClientSession:
    """Open a session that reaches only `addresses`, for one request; the caller closes it. None: it has no cookies."""
    connector = aiohttp.TCPConnector(
        resolver=_PinnedResolver(addresses),
        use_dns_cache=False,
        force_close=True,
        socket_factory=_make_socket_factory(addresses),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar() if cookies is None else cookies,
        auto_decompress=False,  # aiohttp decompresses each piece as a whole, however large the result
        trust_env=False,  # a proxy would resolve the name again
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
    # The last check before the network that a socket is for one of `addresses`.
    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, sockaddr = info
        if parse_address(str(sockaddr[0])) not in addresses:
            raise OSError("an address that was not checked")
        new_socket = socket.socket(family, kind, protocol)
        new_socket.setblocking(False)
        return new_socket

    return make


async def read_bounded_body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the body; raises ValueError if it is larger than `bytes_max`."""
    body = bytearray()
    while piece := await response.content.read(bytes_max + 1 - len(body)):
        body += piece
        if len(body) > bytes_max:
            raise ValueError(f"larger than {bytes_max} bytes")
    return bytes(body)
