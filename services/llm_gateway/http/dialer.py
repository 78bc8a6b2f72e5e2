"""New connections: the name looked up, its addresses tried (Happy Eyeballs, RFC 8305), TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohappyeyeballs import start_connection

from services.llm_gateway.http.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.llm_gateway.http.request import Origin

NEXT_ADDRESS_S = 0.25
"""How long an address is tried alone, as RFC 8305 advises."""

RESOLVED_S = 10.0
"""How long addresses are good for: of a thousand calls that begin together one asks the resolver."""

RECEIVED_SIZE_BYTES_MAX = 256 * 1024
"""What the system holds of a stream whose reader is behind. Left alone it lets that grow to 6 MB for each, and the
provider goes on meanwhile; this is some thousand deltas."""

_Address: TypeAlias = "tuple[int, int, int, str, tuple[Any, ...]]"
"""As getaddrinfo gives it."""


@dataclass(slots=True)
class _ResolvedName:
    """What a host's name stands for."""

    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    addresses: Sequence[_Address] = ()
    until_s: float = 0.0


class Dialer:
    """Opens connections. Shared by all calls; remembers names, of which the provider file has so many."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        """None: made when it is needed first, which takes 20 ms for the machine's certificates."""
        self._names: dict[tuple[str, int], _ResolvedName] = {}

    async def open_connection(self, origin: Origin) -> Connection:
        """A new connection, which the caller closes.

        Raises:
            OSError: There is none to be had.
        """
        tls = await self._load_tls() if origin.is_tls else None
        name = self._names.setdefault((origin.host, origin.port), _ResolvedName())
        try:
            addresses = await _resolve_name(name, origin)
            if len(addresses) == 1 and not any(addresses[0][4][2:]):  # no flow or scope of IPv6, which a text has not
                return await _connect_directly(addresses[0], origin, tls)
            opened = await start_connection(
                addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, loop=asyncio.get_running_loop()
            )
        except OSError:
            name.until_s = 0.0  # they may be out of date
            raise
        return await _wrap_socket(opened, origin, tls)

    async def _load_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_make_tls_context)
        return self._tls


async def _resolve_name(name: _ResolvedName, origin: Origin) -> Sequence[_Address]:
    loop = asyncio.get_running_loop()
    async with name.looking:
        if loop.time() >= name.until_s:
            name.addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            name.until_s = loop.time() + RESOLVED_S
    return name.addresses


async def _connect_directly(address: _Address, origin: Origin, tls: ssl.SSLContext | None) -> Connection:
    """Where there is nothing to choose: at half the cost."""
    loop, server = asyncio.get_running_loop(), origin.host if tls else None
    host, port = address[4][:2]
    transport, connection = await loop.create_connection(
        lambda: Connection(origin), host, port, ssl=tls, server_hostname=server
    )
    try:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_SIZE_BYTES_MAX)
    except ValueError as error:  # of a socket that is closed again already
        raise ConnectionResetError("closed as soon as it was open") from error
    return connection


async def _wrap_socket(opened: socket.socket, origin: Origin, tls: ssl.SSLContext | None) -> Connection:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_SIZE_BYTES_MAX)
    loop, server = asyncio.get_running_loop(), origin.host if tls else None
    try:
        _, connection = await loop.create_connection(
            lambda: Connection(origin), sock=opened, ssl=tls, server_hostname=server
        )
    except BaseException:
        opened.close()
        raise
    return connection


def _make_tls_context() -> ssl.SSLContext:
    """Verifies names and certificates, by what this machine trusts."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
