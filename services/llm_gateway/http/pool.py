"""Connections to providers: idle ones are kept to save TLS handshakes, new ones are opened.

A new one needs name resolution, Happy Eyeballs (RFC 8305), a tunnel through a proxy (CONNECT, RFC 9110, 9.3.6) and TLS.
TLS contexts are recreated when their files change.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from aiohappyeyeballs import start_connection

from headrace.tls import Stamp, Tls
from services.llm_gateway.http.connection import Connection
from services.llm_gateway.http.request import Origin

IDLE_S = 30.0
"""Idle time before a connection is closed, less than the servers' 60 s: if the client closes first, no request is
lost."""

IDLE_MAX = 256
"""Idle connections per origin; with TLS each holds some 50 kB."""

NEXT_ADDRESS_S = 0.25
"""Head start of an address, recommended by RFC 8305."""

RESOLVED_S = 10.0
"""Lifetime of resolved addresses, so that simultaneous calls ask the resolver once."""

RECEIVED_SIZE_BYTES_MAX = 256 * 1024
"""Limit of the system's receive buffer, 6 MB by default."""

_Address: TypeAlias = "tuple[int, int, int, str, tuple[Any, ...]]"

HEAD_BYTES_MAX = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ?([^\r\n]{0,64})")


class Pool:
    """Pool shared by all calls and closed with its block; open connections are not limited."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._contexts: dict[Tls, tuple[Stamp, ssl.SSLContext]] = {}
        self._names: dict[tuple[str, int], _ResolvedName] = {}
        self._idle: dict[Origin, dict[Connection, asyncio.TimerHandle]] = {}
        """Idle connections, oldest first, each with its timer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connections in [*self._idle.values()]:
            for connection in [*connections]:
                self._close_idle(connection)

    async def open_connection(self, origin: Origin) -> Connection:
        """Open a connection; the caller gives it back.

        Raises:
            OSError: The host or its proxy cannot be reached.
        """
        tls = await self._find_context(origin.route.tls) if origin.is_tls else None
        proxy = origin.route.proxy
        place = (origin.host, origin.port) if proxy is None else (proxy.host, proxy.port)
        name = self._names.setdefault(place, _ResolvedName())
        try:
            addresses = await _resolve_name(name, *place)
            # The text of an IPv6 address loses its flow and scope.
            if proxy is None and len(addresses) == 1 and not any(addresses[0][4][2:]):
                return await _connect_directly(addresses[0], origin, tls)
            loop = asyncio.get_running_loop()
            opened = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, loop=loop)
        except OSError:
            name.until_s = 0.0  # the addresses may be out of date
            raise
        return await _wrap_socket(opened, origin, tls)

    def take_idle(self, origin: Origin) -> Connection | None:
        """Return the newest idle connection, which the caller gives back, or None."""
        connections = self._idle.get(origin, {})
        while connections:
            connection, timer = connections.popitem()
            timer.cancel()
            if connection.is_open:
                return connection
        return None

    def give_back(self, connection: Connection, *, is_reusable: bool) -> None:
        connections = self._idle.setdefault(connection.origin, {})
        if not is_reusable or not connection.is_open or len(connections) >= IDLE_MAX:
            connection.close()
        else:
            connection.become_idle()
            connections[connection] = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle, connection)

    async def _find_context(self, tls: Tls) -> ssl.SSLContext:
        """Return the TLS context of these files; creating one takes 20 ms in a thread.

        Raises:
            OSError: A file is unusable.
        """
        if tls == Tls() and self._tls is not None:
            return self._tls
        stamp = tls.read_stamp()
        known = self._contexts.get(tls)
        if known is None or known[0] != stamp:
            context = await asyncio.to_thread(tls.context)
            context.set_alpn_protocols(["http/1.1"])
            known = self._contexts[tls] = stamp, context
        return known[1]

    def _close_idle(self, connection: Connection) -> None:
        self._idle[connection.origin].pop(connection).cancel()
        connection.close()


@dataclass(slots=True)
class _ResolvedName:
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    addresses: Sequence[_Address] = ()
    until_s: float = 0.0


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
    except ValueError as error:  # the socket is closed already
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


class ProxyRefused(OSError):
    """The proxy opened no tunnel; the text contains its answer."""


async def open_tunnel(opened: socket.socket, origin: Origin) -> None:
    """Request a tunnel to `origin` from the proxy connected to `opened`.

    Raises:
        ProxyRefused: The status is not 2xx, or the answer is not HTTP.
        OSError: The connection broke.
    """
    loop = asyncio.get_running_loop()
    assert origin.route.proxy is not None
    target = f"{origin.bracketed_host}:{origin.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization := origin.route.proxy.authorization:
        lines.append(f"Proxy-Authorization: {authorization}")
    await loop.sock_sendall(opened, "\r\n".join([*lines, "", ""]).encode("latin-1"))
    head = b""
    while b"\r\n\r\n" not in head:
        # In TLS the client speaks first, so only the proxy's head can arrive here.
        piece = await loop.sock_recv(opened, HEAD_BYTES_MAX)
        head += piece
        if not piece or len(head) > HEAD_BYTES_MAX:
            break
    match = _STATUS.match(head)
    if match is None:
        raise ProxyRefused("it closed the connection" if not head else "it does not speak HTTP")
    if not match[1].startswith(b"2"):
        raise ProxyRefused(f"it answered {match[1].decode()} {match[2].decode('latin-1')}".rstrip())
