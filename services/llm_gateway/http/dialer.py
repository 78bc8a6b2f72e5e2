"""New connections: name resolution, Happy Eyeballs (RFC 8305), TLS."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohappyeyeballs import start_connection

from services.llm_gateway.http.connection import Connection
from services.llm_gateway.http.tls_contexts import TlsContexts
from services.llm_gateway.http.tunnel import open_tunnel

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from services.llm_gateway.http.request import Origin

NEXT_ADDRESS_S = 0.25
"""Head start of an address, as RFC 8305 advises."""

RESOLVED_S = 10.0
"""Lifetime of resolved addresses; calls that begin together ask the resolver once."""

RECEIVED_SIZE_BYTES_MAX = 256 * 1024
"""Bound of the system's receive buffer, 6 MB by default."""

_Address: TypeAlias = "tuple[int, int, int, str, tuple[Any, ...]]"


@dataclass(slots=True)
class _ResolvedName:
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    addresses: Sequence[_Address] = ()
    until_s: float = 0.0


class Dialer:
    """Opens connections; shared by all calls."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._contexts = TlsContexts(tls)
        self._names: dict[tuple[str, int], _ResolvedName] = {}

    async def open_connection(self, origin: Origin) -> Connection:
        """Open a connection, which the caller closes.

        Raises:
            OSError: The host or its proxy cannot be reached.
        """
        tls = await self._contexts.find_context(origin.route.tls) if origin.is_tls else None
        proxy = origin.route.proxy
        place = (origin.host, origin.port) if proxy is None else (proxy.host, proxy.port)
        name = self._names.setdefault(place, _ResolvedName())
        try:
            addresses = await _resolve_name(name, *place)
            if (
                proxy is None and len(addresses) == 1 and not any(addresses[0][4][2:])
            ):  # a flow or scope of IPv6 is lost in an address's text
                return await _connect_directly(addresses[0], origin, tls)
            opened = await start_connection(
                addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, loop=asyncio.get_running_loop()
            )
        except OSError:
            name.until_s = 0.0  # they may be out of date
            raise
        return await _wrap_socket(opened, origin, tls)


async def _resolve_name(name: _ResolvedName, host: str, port: int) -> Sequence[_Address]:
    loop = asyncio.get_running_loop()
    async with name.looking:
        if loop.time() >= name.until_s:
            name.addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            name.until_s = loop.time() + RESOLVED_S
    return name.addresses


async def _connect_directly(address: _Address, origin: Origin, tls: ssl.SSLContext | None) -> Connection:
    loop, server = asyncio.get_running_loop(), origin.host if tls else None
    host, port = address[4][:2]
    transport, connection = await loop.create_connection(
        lambda: Connection(origin), host, port, ssl=tls, server_hostname=server
    )
    try:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_SIZE_BYTES_MAX)
    except ValueError as error:  # the socket is closed again already
        raise ConnectionResetError("closed as soon as it was open") from error
    return connection


async def _wrap_socket(opened: socket.socket, origin: Origin, tls: ssl.SSLContext | None) -> Connection:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_SIZE_BYTES_MAX)
    loop, server = asyncio.get_running_loop(), origin.host if tls else None
    try:
        if tls is not None and origin.route.proxy is not None:
            await open_tunnel(opened, origin)
        _, connection = await loop.create_connection(
            lambda: Connection(origin), sock=opened, ssl=tls, server_hostname=server
        )
    except BaseException:
        opened.close()
        raise
    return connection
