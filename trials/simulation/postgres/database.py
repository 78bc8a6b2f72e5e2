"""The PostgreSQL of a world: its server, the connections to it, and its faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

import asyncpg

from trials.simulation.plan import POSTGRES
from trials.simulation.postgres.driver import GONE, ModelProtocol, connect_to
from trials.simulation.postgres.server import Server
from trials.simulation.postgres.tables import Tables
from trials.simulation.world.processes import PROCESS

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from trials.simulation.story import Story
    from trials.simulation.world.loop import SimulatedLoop
    from trials.simulation.world.network import Wire
    from trials.simulation.world.processes import Process

MESSAGES_MAX = 8
"""Most messages before a fault strikes: a random count puts it before a statement or between it and its answer."""

STALLS_S = (0.1, 1.0, 4.0, 13.0)
"""Delays of statements while the server is slow; the server gives up some of them, and the client others."""


class Database:
    """One database and its standby; its faults affect all connected clients."""

    def __init__(self, folder: Path, loop: SimulatedLoop, wire: Wire, random: Random, story: Story) -> None:
        folder.mkdir(parents=True)
        self.tables = Tables(folder / "database")
        self.loop, self.wire, self.random, self.story = loop, wire, random, story
        self.server = Server(self.tables, loop)
        self.ends_taken_back: set[str] = set()
        """Runs with an end that a fail-over has taken back: it was never acknowledged, but clients may have
        read it.
        """
        self._ways: dict[WorldWay, None] = {}
        self._strike: tuple[int, Callable[[], None]] | None = None

    async def connect(self, url: str, **options: Any) -> Any:
        """Connect the running process, as asyncpg.connect does."""
        way = WorldWay(self, PROCESS.get())
        async with asyncio.timeout(options["timeout"]):
            await way.make_round_trip()
        if not self.server.is_up:
            raise ConnectionRefusedError("no server listens at the database's port")
        connection = connect_to(self.server, way, options)
        way.protocol = connection._protocol
        self._ways[way] = None
        return connection

    def read_logs(self) -> dict[str, list[bytes]]:
        """Return the committed lines of each chat; empty before there are tables."""
        if not self.tables.committed.execute("SELECT 1 FROM sqlite_master WHERE name = 'lines'").fetchone():
            return {}
        query = "SELECT chat_id, data FROM lines JOIN chats ON chats.id = lines.chat ORDER BY chat_id, n"
        logs: dict[str, list[bytes]] = {}
        for chat_id, data in self.tables.committed.execute(query):
            logs.setdefault(chat_id, []).append(data)
        return logs

    def list_ended(self) -> set[str]:
        """Return the runs with an end in the log."""
        lines = (json.loads(line) for log in self.read_logs().values() for line in log)
        return {line["runId"] for line in lines if line["_type"] == "run"}

    def release(self) -> None:
        """Deliver held messages between processes that have a path again."""
        for way in [*self._ways]:
            way.release()

    def list_left(self, process: Process) -> list[str]:
        """Return the connections that an ended process has left open."""
        return [f"session {way.session.pid}" for way in self._list_ways(process.name) if way.is_open]

    def lose_process(self, process: Process, notice_s: float) -> None:
        for way in self._list_ways(process.name):
            if way.process is process:
                way.lose_client(notice_s)

    def cut(self, name: str, client_notice_s: float, server_notice_s: float) -> bool:
        """Break all connections of a process; return whether there were any."""
        ways = [way for way in self._list_ways(name) if way.is_open]
        for way in ways:
            way.cut(client_notice_s, server_notice_s)
        return bool(ways)

    def strike_at(self, message: int, action: Callable[[], None]) -> None:
        """Run `action` instead of delivering one of the next messages, which is lost."""
        self._strike = message, action

    def strike_now(self, action: Callable[[], None]) -> None:
        """Run `action` unless it has already run."""
        if self._strike is not None and self._strike[1] is action:
            self._strike = None
            action()

    def is_lost(self) -> bool:
        """Count a message; return whether it is lost because a fault strikes instead."""
        if self._strike is None:
            return False
        left, action = self._strike
        self._strike = (left - 1, action) if left > 1 else None
        if left <= 1:
            action()
        return left <= 1

    def forget(self, way: WorldWay) -> None:
        self._ways.pop(way, None)

    def _list_ways(self, name: str) -> list[WorldWay]:
        return [way for way in self._ways if way.process.name == name]


class WorldWay:
    """The path between one client and the server; `protocol` is the client's end, once it exists."""

    protocol: ModelProtocol

    def __init__(self, database: Database, process: Process) -> None:
        self.process = process
        self._database = database
        self._last_s = {True: 0.0, False: 0.0}
        """Arrival times of the last answer and the last call."""
        self._held: list[tuple[Callable[[], None], Context, bool]] = []
        self._is_cut = False

    @property
    def session(self) -> Any:
        return self.protocol.session

    @property
    def is_open(self) -> bool:
        return not self._is_cut and self.protocol.is_connected()

    def has_path(self) -> bool:
        return not self._is_cut and self._database.wire.has_path(self.process.name, POSTGRES)

    def send(self, deliver: Callable[[], None], context: Context, *, is_answer: bool) -> None:
        if self._is_cut:
            return
        if not self.has_path():
            self._held.append((deliver, context, is_answer))
            return
        database, loop = self._database, self._database.loop
        delay_s = database.wire.choose_delay_s(self.process.name, POSTGRES)
        self._last_s[is_answer] = max(self._last_s[is_answer], loop.time() + delay_s)
        loop.call_at(self._last_s[is_answer], self._arrive, deliver, context, context=Context())

    def _arrive(self, deliver: Callable[[], None], context: Context) -> None:
        if not (self._is_cut or self._database.is_lost() or self.process.is_dead):
            self._database.loop.call_soon(deliver, context=context)
        if not self.protocol.is_connected() and self.session.is_lost:
            self._database.forget(self)

    def release(self) -> None:
        held, self._held = self._held, []
        for deliver, context, is_answer in held:
            self.send(deliver, context, is_answer=is_answer)

    async def make_round_trip(self) -> None:
        """Wait until a connection has been requested and answered; without a path, wait forever."""
        if not self.has_path():
            await asyncio.Event().wait()
        wire = self._database.wire
        await asyncio.sleep(2 * wire.choose_delay_s(self.process.name, POSTGRES))

    def cut(self, client_notice_s: float, server_notice_s: float) -> None:
        """Break the connection; each end notices after its own time."""
        self._is_cut = True
        error = asyncpg.ConnectionDoesNotExistError(GONE)
        loop, context = self._database.loop, self.protocol.context
        loop.call_later(client_notice_s, lambda: self.protocol.break_off(error), context=context)
        loop.call_later(server_notice_s, self._end, context=Context())

    def lose_client(self, notice_s: float) -> None:
        """End the session of a dead client."""
        self._is_cut = True
        self._database.loop.call_later(notice_s, self._end, context=Context())

    def _end(self) -> None:
        self._database.server.end_session(self.session)
        self._database.forget(self)
