"""Binds sockets, and accepts a few connections at a time, within a stranger's share of the processor.

asyncio's servers accept all waiting connections in one turn, which delays all streams, and begin each one: the cost
arises before any check. Here, connections of an address that has used up its share wait as sockets; with TLS they are
closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from services.runtime.http2.limits import ACCEPT_AGAIN_S, ACCEPTED_IN_A_TURN, ACCEPTING_MAX, DEFERRED_MAX, DEFERRED_S
from services.runtime.http2.server.connection import ServerConnection, ServerState
from services.runtime.http2.server.unauthenticated import CURRENT, Handshake, MeasuredSslObject
from services.runtime.net.listening import bind_port

log = structlog.get_logger()


class Listener:
    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        make_connection: Callable[[], ServerConnection],
        server: ServerState,
    ) -> None:
        """Listen until `close`, which closes the socket too."""
        self._listening = listening
        if context is not None:
            context.sslobject_class = MeasuredSslObject
        self._context = context
        self._make_connection = make_connection
        self._server = server
        self._beginning: set[asyncio.Task[None]] = set()
        self._deferred: deque[tuple[socket.socket, tuple[str, int]]] = deque()
        """Sockets with their peers' addresses, the one waiting longest first."""
        self._later: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        listening.setblocking(False)
        listening.listen(ACCEPTING_MAX)
        self._start_accepting()

    def close(self) -> None:
        """Accept no more connections, and end the handshakes."""
        if self._listening.fileno() < 0:
            return
        for timer in (self._again, self._later):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for connection, _ in self._deferred:
            connection.close()
        self._deferred.clear()
        for task in self._beginning:
            task.cancel()

    def _start_accepting(self) -> None:
        self._loop.add_reader(self._listening, self._accept_waiting)

    def _accept_waiting(self) -> None:
        for _ in range(ACCEPTED_IN_A_TURN):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # The system has no descriptor or memory left; the waiting sockets would trigger the callback again at
                # once.
                log.warning("connections not accepted", error=str(error))
                self._loop.remove_reader(self._listening)
                self._again = self._loop.call_later(ACCEPT_AGAIN_S, self._start_accepting)
                return
            connection.setblocking(False)
            if self._context is not None:
                is_full = len(self._beginning) >= self._server.limits.connections_max
                if is_full or (handshake := self._server.begin_handshake(address)) is None:
                    connection.close()
                else:
                    self._begin(connection, handshake)
            elif self._server.find_wait(address):
                self._defer(connection, address)
            else:
                self._begin(connection, Handshake())

    def _defer(self, connection: socket.socket, address: tuple[str, int]) -> None:
        self._deferred.append((connection, address))
        if len(self._deferred) > DEFERRED_MAX:
            oldest, _ = self._deferred.popleft()
            oldest.close()
        if self._later is None:
            self._later = self._loop.call_later(DEFERRED_S, self._begin_deferred)

    def _begin_deferred(self) -> None:
        left = ACCEPTED_IN_A_TURN
        hosts = {address[0]: address for _, address in self._deferred}
        waits_s = {host: self._server.find_wait(address) for host, address in hosts.items()}
        for _ in range(len(self._deferred)):
            connection, address = self._deferred.popleft()
            if left and not waits_s[address[0]]:
                left -= 1
                self._begin(connection, Handshake())
            else:
                self._deferred.append((connection, address))
        self._later = self._loop.call_later(DEFERRED_S, self._begin_deferred) if self._deferred else None

    def _begin(self, connection: socket.socket, handshake: Handshake) -> None:
        protocol = self._make_connection()
        task = self._loop.create_task(self._begin_connection(connection, protocol, handshake))
        self._beginning.add(task)
        task.add_done_callback(partial(self._end_beginning, connection, protocol))

    def _end_beginning(self, connection: socket.socket, protocol: ServerConnection, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        if not task.cancelled():
            return
        connection.close()
        if protocol.is_made:
            # uvloop closes the socket of a connection that was made, and never reports the loss (0.23).
            protocol.connection_lost(None)

    async def _begin_connection(
        self, connection: socket.socket, protocol: ServerConnection, handshake: Handshake
    ) -> None:
        CURRENT.set(handshake)
        with suppress(OSError):  # the peer's fault, or its time is over: the loop has closed it
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._server.limits.preface_s if self._context is not None else None,
            )


def bind_address(address: str, *, reuse_port: bool = False) -> tuple[list[socket.socket], int]:
    """Return sockets bound to host:port or unix:/path, and their port (1 for a path, as in grpcio); raises OSError."""
    if address.startswith("unix:"):
        return [_bind_path(address.removeprefix("unix:"))], 1
    return bind_port(address, reuse_port=reuse_port)


def _bind_path(path: str) -> socket.socket:
    # An abandoned socket file is in the way; serving_grpc() has checked that it is unused.
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    item = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        item.bind(path)
    except OSError:
        item.close()
        raise
    item.setblocking(False)
    return item
