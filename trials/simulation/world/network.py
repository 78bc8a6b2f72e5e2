"""The network between simulated processes: `local` connections with delays, partitions, cuts and half-open ends."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from services.runtime.calls.metadata import Status
from services.runtime.local.connections import LocalClientConnection, LocalServerConnection, LocalServerState
from services.runtime.local.network import LocalNetwork
from trials.simulation.plan import MEMORY
from trials.simulation.world.history import History
from trials.simulation.world.processes import Process

if TYPE_CHECKING:
    from random import Random

    from trials.simulation.story import Story
    from trials.simulation.world.loop import SimulatedLoop

SLOW_S = (0.01, 0.5)
"""Delays while the network is slow."""

KEEPALIVE_S = 40.0
"""Time after which an end notices that the other one has vanished, as over HTTP/2."""


@dataclass(slots=True)
class Conditions:
    """The present state of the network."""

    delay_s: tuple[float, float] = (0.000_05, 0.001)
    slow_share: float = 0.01
    """Share of deliveries that take longer, up to `slow_s`."""
    slow_s: float = 0.05


@dataclass(slots=True)
class _Hit:
    """A fault of the network, which counts once it has affected a message."""

    kind: str
    process: str
    faults: int = 0
    """Number of present faults of this kind at the process."""
    is_noted: bool = False

    def note(self, story: Story) -> None:
        if not self.is_noted:
            self.is_noted = True
            story.bite(self.kind, self.process)


@dataclass(frozen=True, slots=True)
class _Listener:
    process: Process
    server: LocalServerState
    context: Context


class Wire:
    """The network's state that simulated processes share."""

    def __init__(self, loop: SimulatedLoop, random: Random, story: Story) -> None:
        self.loop, self.random, self.story = loop, random, story
        self.listeners: dict[str, _Listener] = {}
        self.connections: dict[Connection, None] = {}
        self.conditions = Conditions()
        self.parted: dict[tuple[str, str], _Hit] = {}
        """Pairs of process names, in both orders, between which nothing passes."""
        self._slow: dict[str, _Hit] = {}
        """Processes with slow messages."""
        self.problems: list[str] = []
        self.history = History()
        self.serials = itertools.count(1)
        self.on_mend: Callable[[], None] = lambda: None
        """Called when two processes have a path again, to release other traffic between them."""

    def has_path(self, source: str, target: str) -> bool:
        if (hit := self.parted.get((source, target))) is None:
            return True
        hit.note(self.story)
        return False

    def slow_down(self, name: str, change: int) -> None:
        """Begin a time in which messages from and to a process are slow (1), or end one (-1)."""
        hit = self._slow.setdefault(name, _Hit("slow", name))
        hit.faults += change
        if not hit.faults:
            del self._slow[name]

    def choose_delay_s(self, source: str, target: str) -> float:
        hit = self._slow.get(source) or self._slow.get(target)
        if hit is not None:
            hit.note(self.story)
        return self.random.uniform(*(self.conditions.delay_s if hit is None else SLOW_S))

    def part(self, source: str, targets: Sequence[str]) -> None:
        """Block all messages between one process and others."""
        hit = _Hit("part", source)
        for target in targets:
            self.parted |= {(source, target): hit, (target, source): hit}

    def mend(self, source: str, targets: Sequence[str]) -> None:
        for target in targets:
            self.parted.pop((source, target), None)
            self.parted.pop((target, source), None)
        for connection in [*self.connections]:
            connection.release()
        self.on_mend()

    def list_left(self, process: Process) -> list[str]:
        """Return the listeners and connections that an ended process has left open."""
        left = [address for address, listener in self.listeners.items() if listener.process is process]
        return left + [connection.name for connection in self.connections if connection.is_open_at(process)]

    def lose_process(self, process: Process, notice_s: float) -> None:
        """Cut all connections of a dead process; the other ends notice after `notice_s`."""
        for address, listener in [*self.listeners.items()]:
            if listener.process is process:
                del self.listeners[address]
        for connection in [*self.connections]:
            if process in (connection.client_process, connection.server_process):
                connection.cut(notice_s, notice_s)


@dataclass(slots=True, eq=False)
class _Direction:
    """Messages in one direction of a connection."""

    source: str
    target: str
    last_s: float = 0.0
    held: list[tuple[Callable[[], None], Context]] = field(default_factory=list[tuple[Callable[[], None], Context]])


class Connection:
    def __init__(
        self,
        wire: Wire,
        client_process: Process,
        client: LocalClientConnection,
        server_process: Process,
        server: LocalServerConnection,
        server_context: Context,
        number: int,
    ) -> None:
        self.client_process, self.server_process, self.number = client_process, server_process, number
        self.wire, self.serial = wire, next(wire.serials)
        self._client, self._server = client, server
        self._client_context, self._server_context = copy_context(), server_context
        self._is_cut = False
        up = _Direction(client_process.name, server_process.name)
        down = _Direction(server_process.name, client_process.name)
        self._directions = (up, down)
        self.name = f"{client_process.name}>{server_process.name}#{number}"
        asked = server_process.name.partition("-")[0] == MEMORY
        note_up, note_down = (wire.history.note_up, wire.history.note_down) if asked else (None, None)
        client.connect(server, _TracedLink(self._schedule_over(up), server_context, self, "up", note_up))
        server.connect(client, _TracedLink(self._schedule_over(down), self._client_context, self, "down", note_down))
        wire.connections[self] = None

    def __hash__(self) -> int:
        return self.serial

    def is_open_at(self, process: Process) -> bool:
        """Return whether the process has an open end of the connection."""
        is_client = self.client_process is process and not self._client.is_lost
        return is_client or (self.server_process is process and not self._server.is_lost)

    def _schedule_over(self, way: _Direction) -> Callable[[Callable[[], None], Context], None]:
        def schedule(deliver: Callable[[], None], context: Context) -> None:
            if self._is_cut:
                return
            if not self.wire.has_path(way.source, way.target):
                way.held.append((deliver, context))
                return
            conditions, random = self.wire.conditions, self.wire.random
            delay_s = self.wire.choose_delay_s(way.source, way.target)
            if random.random() < conditions.slow_share:
                delay_s += random.uniform(0, conditions.slow_s)
            way.last_s = max(way.last_s, self.wire.loop.time() + delay_s)
            self.wire.loop.call_at(way.last_s, self._deliver, deliver, context=context)

        return schedule

    def _deliver(self, deliver: Callable[[], None]) -> None:
        if not self._is_cut:
            deliver()
        if self._client.is_lost and self._server.is_lost:
            self.wire.connections.pop(self, None)

    def release(self) -> None:
        """Deliver held messages where the path is free again."""
        for way in self._directions:
            if self.wire.has_path(way.source, way.target):
                held, way.held = way.held, []
                for deliver, context in held:
                    self._schedule_over(way)(deliver, context)

    def cut(self, client_notice_s: float, server_notice_s: float) -> None:
        """Lose the connection and all messages in transit; each end notices after its own time."""
        if self._is_cut:
            return
        self._is_cut = True
        self.wire.connections.pop(self, None)
        loop = self.wire.loop
        why = "the connection broke: reset by the network"
        loop.call_later(client_notice_s, self._client_lost, why, context=self._client_context)
        loop.call_later(server_notice_s, self._server.receive_close, context=self._server_context)

    def _client_lost(self, why: str) -> None:
        if not self._client.is_lost:
            self._client.lose(why)


Schedule: TypeAlias = "Callable[[Callable[[], None], Context], object]"
"""Calls back once, in a context, after a simulated network delay."""


class QueuedLink:
    __slots__ = ("_context", "_is_due", "_queue", "_schedule")

    def __init__(self, schedule: Schedule, context: Context) -> None:
        """`context` is the receiver's."""
        self._schedule = schedule
        self._context = context
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_due = False

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        self._queue.append((receive, args))
        if not self._is_due:
            self._is_due = True
            self._schedule(self._deliver, self._context)

    def _deliver(self) -> None:
        queue = self._queue
        try:
            for _ in range(len(queue)):
                receive, args = queue.popleft()
                receive(*args)
        finally:
            # Items sent in the meantime get the next turn, and so do those left after an exception.
            self._is_due = bool(queue)
            if queue:
                self._schedule(self._deliver, self._context)


class _TracedLink(QueuedLink):
    __slots__ = ("_connection", "_name", "_note", "_wire")

    def __init__(
        self, schedule: Any, context: Context, connection: Connection, way: str, note: Callable[..., None] | None
    ) -> None:
        """Create the link; `note` receives each message for the history."""
        super().__init__(schedule, context)
        self._wire, self._connection, self._note = connection.wire, connection.serial, note
        self._name = f"{connection.name} {way}"

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        if self._note is not None:
            self._note(self._connection, receive.__name__, args, self._wire.loop.time())
        self._wire.story.trace(self._name, receive.__name__, args)
        status = args[-1] if args else None
        if isinstance(status, Status) and status.code is grpc.StatusCode.UNIMPLEMENTED:
            self._wire.problems.append(f"{self._name}: a service was asked for what it does not serve")
        super().send(receive, *args)


class ProcessNetwork(LocalNetwork):
    """The network as one process sees it."""

    def __init__(self, wire: Wire, process: Process) -> None:
        super().__init__()
        self._wire, self._process = wire, process

    def listen(self, address: str, server: LocalServerState) -> None:
        if address in self._wire.listeners:
            raise OSError(f"another server listens on {address}")
        self._wire.listeners[address] = _Listener(self._process, server, copy_context())

    def stop_listening(self, address: str, server: LocalServerState) -> None:
        listener = self._wire.listeners.get(address)
        if listener is not None and listener.server is server:
            del self._wire.listeners[address]

    def can_reach(self, address: str) -> bool:
        listener = self._wire.listeners.get(address)
        return listener is not None and self._wire.has_path(self._process.name, listener.process.name)

    def connect(self, address: str, client: LocalClientConnection) -> None:
        listener = self._wire.listeners[address]
        number = next(self._numbers)
        server = LocalServerConnection(listener.server, f"{self._process.name}:{number}")
        Connection(self._wire, self._process, client, listener.process, server, listener.context, number)
