"""Limits the idle connections of one address that have sent no authenticated request.

Each costs a file descriptor and memory until its timeout, and one address could take all descriptors. All
clients of a proxy share its address, so only connections that wait for a request count.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from aiohttp import web

from services.facade.middleware.credentials import GUARDED
from services.facade.middleware.request_lifecycle import Handler
from services.runtime.calls.addresses import find_network

CONNECTIONS_MAX = 1024
"""Maximum number per address; one more closes the connection that has waited longest."""

Address: TypeAlias = Any
"""Network of a peer, or the system's peer name if it has no IP address."""


class Strangers:
    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._addresses: dict[asyncio.BaseTransport, Address] = {}
        self._waiting: dict[Address, dict[asyncio.BaseTransport, None]] = {}
        """Connections that wait for a request, by address, longest wait first."""

    def add_connection(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._addresses[transport] = find_network(str(peer[0])) if isinstance(peer, tuple) else peer
        self._begin_wait(transport)

    def remove_connection(self, transport: asyncio.BaseTransport) -> None:
        """Stop tracking a connection that has ended or is authenticated."""
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
        """Stop tracking the connection; runs after the credential check."""
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
