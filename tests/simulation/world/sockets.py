"""Sockets to what is outside of the world, in memory: transports as asyncio's, with delays, cuts and resets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.world.processes import Process, find_process

if TYPE_CHECKING:
    from tests.simulation.world.loop import SimulatedLoop

DELAY_S = (0.000_1, 0.002)


class Sockets:
    """Connections from processes to servers that outlive all of them, by host name."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.servers: dict[str, Callable[[], asyncio.Protocol]] = {}
        self._open: dict[MemoryTransport, None] = {}
        loop.dial = self.connect

    async def connect(
        self, make_client: Callable[[], asyncio.Protocol], host: str
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        """Connect a client of the running process; raises OSError if nobody listens."""
        await asyncio.sleep(self.random.uniform(*DELAY_S))
        if (make_server := self.servers.get(host)) is None:
            raise ConnectionRefusedError(f"nobody listens at {host}")
        process = find_process(copy_context())
        near = MemoryTransport(self, copy_context(), make_client(), process)
        far = MemoryTransport(self, Context(), make_server(), None)
        near.peer, far.peer = far, near
        self._open |= {near: None, far: None}
        for end in (far, near):
            end.context.run(end.protocol.connection_made, end)
        return near, near.protocol

    def forget(self, end: MemoryTransport) -> None:
        self._open.pop(end, None)

    def list_left(self, process: Process) -> list[str]:
        return [f"socket {end.number}" for end in self._open if end.process is process]

    def lose_process(self, process: Process) -> None:
        """Reset all connections of a dead process."""
        for end in [*self._open]:
            if end.process is process:
                end.abort()


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    _numbers = itertools.count(1)
    peer: MemoryTransport

    def __init__(self, sockets: Sockets, context: Context, protocol: asyncio.Protocol, process: Process | None) -> None:
        super().__init__()
        self.context, self.protocol, self.process = context, protocol, process
        self.number = next(self._numbers)
        self._sockets = sockets
        self._last_s = 0.0
        """When what was sent last arrives."""
        self._is_closed = False
        self._is_paused = False
        self._held: list[bytes] = []

    def __hash__(self) -> int:
        return self.number

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._send(self.peer._receive, bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(ConnectionResetError("the connection was reset"))

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        held, self._held = self._held, []
        for data in held:
            self._sockets.loop.call_soon(self._receive, data, context=self.context)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Socket() if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def _end(self, error: Exception | None) -> None:
        if not self._is_closed:
            self._send(self.peer._lose, error)
            self._lose(None)

    def _send(self, receive: Callable[..., None], what: object) -> None:
        loop = self._sockets.loop
        self._last_s = max(self._last_s, loop.time() + self._sockets.random.uniform(*DELAY_S))
        loop.call_at(self._last_s, receive, what, context=self.peer.context)

    def _receive(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._is_paused:
            self._held.append(data)
        else:
            self.protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._sockets.forget(self)
            self._sockets.loop.call_soon(self.protocol.connection_lost, error, context=self.context)


class _Socket:
    def setsockopt(self, *_: object) -> None:
        """Do nothing: there are no buffers."""
