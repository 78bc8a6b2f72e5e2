"""Idle connections, kept to save TLS handshakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from services.llm_gateway.http.dialer import Dialer

if TYPE_CHECKING:
    import ssl

    from services.llm_gateway.http.connection import Connection
    from services.llm_gateway.http.request import Origin

IDLE_S = 30.0
"""Less than the 60 s after which servers close: a client that closes first loses no request."""

IDLE_MAX = 256
"""Idle connections per origin; with TLS each holds some 50 kB."""


class Pool:
    """The pool is shared by all calls and closed with its block; open connections are not limited."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._dialer = Dialer(tls)
        self._idle: dict[Origin, dict[Connection, asyncio.TimerHandle]] = {}
        """Idle connections, oldest first, each with its timer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connections in [*self._idle.values()]:
            for connection in [*connections]:
                self._close_idle(connection)

    async def open_connection(self, origin: Origin) -> Connection:
        """Open a connection, to be given back."""
        return await self._dialer.open_connection(origin)

    def take_idle(self, origin: Origin) -> Connection | None:
        """Return the newest idle connection, to be given back, or None."""
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

    def _close_idle(self, connection: Connection) -> None:
        self._idle[connection.origin].pop(connection).cancel()
        connection.close()
