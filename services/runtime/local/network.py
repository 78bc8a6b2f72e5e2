"""Registry of a process's servers by address, and the dialer that looks there first.

A process has one network; setting another one for a context (`NETWORK.set`) isolates what runs in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass

from services.runtime.calls.addresses import LOCAL, Address, Target, describe_address
from services.runtime.calls.ends import ClientEnd, Dialer
from services.runtime.http2.limits import DEFAULTS
from services.runtime.local.connections import LocalClientConnection, LocalServerConnection, LocalServerState
from services.runtime.local.stream import DirectLink, Link


@dataclass(frozen=True, slots=True)
class _Listener:
    server: LocalServerState
    loop: asyncio.AbstractEventLoop
    context: Context
    """The server's context, in which it receives."""


class LocalNetwork:
    def __init__(self) -> None:
        self._listeners: dict[str, _Listener] = {}
        self._numbers = itertools.count(1)

    def listen(self, address: str, server: LocalServerState) -> None:
        """Pass connections to `address` to a server of this loop; raises OSError if it is taken."""
        if (taken := self._listeners.get(address)) is not None and not taken.loop.is_closed():
            raise OSError(f"another server of this process listens on {address}")
        self._listeners[address] = _Listener(server, asyncio.get_running_loop(), copy_context())

    def stop_listening(self, address: str, server: LocalServerState) -> None:
        if (listener := self._listeners.get(address)) is not None and listener.server is server:
            del self._listeners[address]

    def can_reach(self, address: str) -> bool:
        """Return whether a server of this loop listens on `address`."""
        listener = self._listeners.get(address)
        return listener is not None and listener.loop is asyncio.get_running_loop()

    def connect(self, address: str, client: LocalClientConnection) -> None:
        """Connect `client` to the server that listens on `address`, which must be reachable."""
        listener = self._listeners[address]
        server = LocalServerConnection(listener.server, f"local:{next(self._numbers)}")
        client.connect(server, self.make_link(listener.context))
        server.connect(client, self.make_link(copy_context()))

    def make_link(self, context: Context) -> Link:
        """Return one direction of a connection, whose receiver has `context`."""
        return DirectLink(context)


NETWORK: ContextVar[LocalNetwork] = ContextVar("NETWORK", default=LocalNetwork())  # noqa: B039 - one for the process


@dataclass(frozen=True, slots=True)
class LocalDialer:
    network: LocalNetwork
    message_bytes_max: int
    elsewhere: Dialer
    """Dialer for addresses at which no server of the process listens."""

    @property
    def target(self) -> Target:
        return self.elsewhere.target

    async def open_connection(
        self, address: Address, on_free: Callable[[], None], on_gone: Callable[[ClientEnd, str], None]
    ) -> ClientEnd:
        where = describe_address(address)
        if self.network.can_reach(where):
            connection = LocalClientConnection(self.message_bytes_max, DEFAULTS, on_free, on_gone)
            self.network.connect(where, connection)
            return connection
        if where.startswith(LOCAL):
            raise OSError(f"cannot connect to {where}: no server of this process listens there")
        return await self.elsewhere.open_connection(address, on_free, on_gone)
