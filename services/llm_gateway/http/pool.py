"""Idle connections, kept for the next call to the same provider: they save a TLS handshake before the first delta."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from services.llm_gateway.http.dialer import Dialer

if TYPE_CHECKING:
    import ssl

    from services.llm_gateway.http.connection import Connection
    from services.llm_gateway.http.request import Origin

IDLE_S = 30.0
"""Servers close idle connections after 60 s or so; those which go first lose no request."""

IDLE_MAX = 256
"""For one origin: what a burst of calls leaves behind. With TLS, each holds some 50 kB."""


class Pool:
    """Shared by all calls, and closed by leaving its block. Open connections have no limit here: streams are limited
    by the server, and a second limit would be a queue without a name."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._dialer = Dialer(tls)
        self._idle: dict[Origin, dict[Connection, asyncio.TimerHandle]] = {}
        """In the order in which they became idle, with the end of each."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connections in [*self._idle.values()]:
            for connection in [*connections]:
                self._close_idle(connection)

    async def open_connection(self, origin: Origin) -> Connection:
        """A new connection, to be given back.

        Raises:
            OSError: There is none to be had.
        """
        return await self._dialer.open_connection(origin)

    def take_idle(self, origin: Origin) -> Connection | None:
        """The connection that became idle last and is still open, to be given back; None: there is none."""
        connections = self._idle.get(origin, {})
        while connections:
            connection, timer = connections.popitem()
            timer.cancel()
            if connection.is_open:
                return connection
        return None

    def give_back(self, connection: Connection, *, is_reusable: bool) -> None:
        """A call has done with it: keep it, or close it at once."""
        connections = self._idle.setdefault(connection.origin, {})
        if not is_reusable or not connection.is_open or len(connections) >= IDLE_MAX:
            connection.close()
        else:
            connection.become_idle()
            connections[connection] = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle, connection)

    def _close_idle(self, connection: Connection) -> None:
        self._idle[connection.origin].pop(connection).cancel()
        connection.close()
