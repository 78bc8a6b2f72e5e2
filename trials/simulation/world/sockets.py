"""In-memory sockets, between processes and to outside servers: asyncio transports with delays and resets."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from trials.simulation.world.processes import Process, find_process

if TYPE_CHECKING:
    from trials.simulation.world.loop import SimulatedLoop
    from trials.simulation.world.network import Wire

DELAY_S = (0.000_1, 0.002)


@dataclass(frozen=True, slots=True)
class Listener:
    make: Callable[[], asyncio.Protocol]
    process: Process | None = None
    """None: an outside server, which outlives all processes."""
    context: Context = field(default_factory=Context)


class Sockets:
    """Connections from processes to servers, by host name."""

    def __init__(self, loop: SimulatedLoop, random: Random, wire: Wire) -> None:
        """Create the sockets; `wire` defines the partitions and the slow processes."""
        self.loop, self.random, self.wire = loop, random, wire
        self.servers: dict[str, Listener] = {}
        self._open: dict[MemoryTransport, None] = {}
        loop.dial, loop.serve = self.connect, self.listen
        wire.on_mend = self.release

    def listen(self, make_server: Callable[[], asyncio.Protocol], host: str, port: int) -> ListeningSocket:
        """Accept connections to `host` for the running process."""
        if host in self.servers:
            raise OSError(f"another server listens on {host}")
        self.servers[host] = Listener(make_server, find_process(copy_context()), copy_context())
        return ListeningSocket(self, host, port)

    async def connect(
        self, make_client: Callable[[], asyncio.Protocol], host: str
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        """Connect a client of the running process; raise OSError if no server listens."""
        await asyncio.sleep(self.random.uniform(*DELAY_S))
        listener, process = self.servers.get(host), find_process(copy_context())
        if listener is None or not self.has_path(process, listener.process):
            raise ConnectionRefusedError(f"no server listens at {host}")
        near = MemoryTransport(self, copy_context(), make_client(), process)
        far = MemoryTransport(self, listener.context.copy(), listener.context.run(listener.make), listener.process)
        near.peer, far.peer = far, near
        self._open |= {near: None, far: None}
        for end in (far, near):
            end.context.run(end.protocol.connection_made, end)
        return near, near.protocol

    def has_path(self, source: Process | None, target: Process | None) -> bool:
        return source is None or target is None or self.wire.has_path(source.name, target.name)

    def choose_delay_s(self, source: Process | None, target: Process | None) -> float:
        delay_s = self.random.uniform(*DELAY_S)
        if source is None or target is None:
            return delay_s
        return max(delay_s, self.wire.choose_delay_s(source.name, target.name))

    def release(self) -> None:
        """Send held data between processes that have a path again."""
        for end in [*self._open]:
            end.send_held()

    def cut(self, one: str, other: str) -> bool:
        """Reset the connections between two processes; return whether there were any."""
        ends = [
            end
            for end in self._open
            if end.process is not None
            and end.peer.process is not None
            and {end.process.name, end.peer.process.name} == {one, other}
        ]
        for end in ends:
            end.break_off()
        return bool(ends)

    def forget(self, end: MemoryTransport) -> None:
        self._open.pop(end, None)

    def list_left(self, process: Process) -> list[str]:
        hosts = [host for host, listener in self.servers.items() if listener.process is process]
        return hosts + [f"socket {end.number}" for end in self._open if end.process is process]

    def lose_process(self, process: Process) -> None:
        """Reset all connections of a dead process."""
        for host, listener in [*self.servers.items()]:
            if listener.process is process:
                del self.servers[host]
        for end in [*self._open]:
            if end.process is process:
                end.abort()


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listener that its server can close; also its own socket."""

    _sockets: Sockets
    _host: str
    _port: int

    @property
    def sockets(self) -> list[ListeningSocket]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return self._host, self._port

    def close(self) -> None:
        self._sockets.servers.pop(self._host, None)


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
        """Arrival time of the data sent last."""
        self._is_closed = False
        self._is_paused = False
        self._held: list[bytes] = []
        self._unsent: list[tuple[Callable[..., None], object]] = []
        """Data without a path to the other end."""

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

    def break_off(self) -> None:
        """Lose the connection at this end, as the network does."""
        self._lose(ConnectionResetError("the connection was reset"))

    def send_held(self) -> None:
        if self._unsent and self._sockets.has_path(self.process, self.peer.process):
            unsent, self._unsent = self._unsent, []
            for receive, what in unsent:
                self._send(receive, what)

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
        loop, sockets, target = self._sockets.loop, self._sockets, self.peer.process
        if self._unsent or not sockets.has_path(self.process, target):
            self._unsent.append((receive, what))
            return
        self._last_s = max(self._last_s, loop.time() + sockets.choose_delay_s(self.process, target))
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
    family = socket.AF_INET

    def setsockopt(self, *_: object) -> None:
        """Do nothing: there are no buffers."""
