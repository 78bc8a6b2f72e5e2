"""Bounds the connections of one address that have brought no request that was admitted.

Each costs a descriptor and some memory until its time is over, and one address could take all descriptors. Behind a
proxy all clients have the proxy's address, so only connections that wait for a request count.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from aiohttp import web

from services.facade.middleware.credentials import GUARDED
from services.facade.middleware.request_lifecycle import Handler
from services.runtime.calls.addresses import find_network

CONNECTIONS_MAX = 1024
"""Number of an address; with the next one, the one that has waited longest is closed."""

Address: TypeAlias = Any
"""The network of a peer; whatever the system says of one that has none."""


class Strangers:
    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._addresses: dict[asyncio.BaseTransport, Address] = {}
        self._waiting: dict[Address, dict[asyncio.BaseTransport, None]] = {}
        """Connections that wait for a request, by address, the longest first."""

    def add_connection(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._addresses[transport] = find_network(str(peer[0])) if isinstance(peer, tuple) else peer
        self._begin_wait(transport)

    def remove_connection(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that has ended, or is no stranger's."""
        self._end_wait(transport)
        self._addresses.pop(transport, None)

    @web.middleware
    async def follow_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        if transport is None or transport not in self._addresses:
            return await handler(request)
        self._end_wait(transport)
        try:
            return await handler(request)
        finally:
            if transport in self._addresses:
                self._begin_wait(transport)

    @web.middleware
    async def note_admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Stands behind the check of credentials."""
        if request.transport is not None and request.path.startswith(GUARDED):
            self.remove_connection(request.transport)
        return await handler(request)

    def _begin_wait(self, transport: asyncio.BaseTransport) -> None:
        connections = self._waiting.setdefault(self._addresses[transport], {})
        connections[transport] = None
        if len(connections) > self._connections_max:
            oldest = next(iter(connections))
            self.remove_connection(oldest)
            oldest.close()

    def _end_wait(self, transport: asyncio.BaseTransport) -> None:
        address = self._addresses.get(transport)
        connections = self._waiting.get(address, {})
        connections.pop(transport, None)
        if not connections:
            self._waiting.pop(address, None)
