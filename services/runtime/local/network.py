"""Where the channels and servers of a process meet, by address.

A process has one network; another one for a context (`NETWORK.set`) keeps what runs in that apart.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass

from services.runtime.local.client_connection import LocalClientConnection
from services.runtime.local.link import Link
from services.runtime.local.server_connection import LocalServerConnection, LocalServerState


@dataclass(frozen=True, slots=True)
class _Listener:
    server: LocalServerState
    loop: asyncio.AbstractEventLoop
    context: Context
    """Context of the server, in which it receives."""


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
        """Whether a server of this loop listens on `address`."""
        listener = self._listeners.get(address)
        return listener is not None and listener.loop is asyncio.get_running_loop()

    def connect(self, address: str, client: LocalClientConnection) -> None:
        """Connect `client` to the server that listens on `address`, which must be reachable."""
        listener = self._listeners[address]
        server = LocalServerConnection(listener.server, f"local:{next(self._numbers)}")
        client.connect(server, Link(self.schedule, listener.context))
        server.connect(client, Link(self.schedule, copy_context()))

    def schedule(self, deliver: Callable[[], None], context: Context) -> None:
        """Call `deliver` in `context` in the loop's next turn."""
        asyncio.get_running_loop().call_soon(deliver, context=context)


NETWORK: ContextVar[LocalNetwork] = ContextVar("NETWORK", default=LocalNetwork())  # noqa: B039 - one for the process
