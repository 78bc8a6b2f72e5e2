"""One interpreter for each run of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from headrace.errors import Overloaded
from services.runtime.ending import guard_task
from services.runtime.newest import NewestDict
from services.tools.interpreter.session import InterpreterSession

log = structlog.get_logger()

IDLE_S = 600.0
"""Idle time after which an interpreter ends, because the service is not notified when a run ends."""

REMEMBERED_MAX = 1000

Key = tuple[str, str]


@dataclass(slots=True)
class _PoolEntry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0

    used_at: float = 0.0
    """Time of last use, by the loop's clock."""

    session: InterpreterSession | None = None


@dataclass(frozen=True, slots=True)
class BorrowedInterpreter:
    session: InterpreterSession
    has_forgotten: bool
    """Whether the run has lost its variables."""


class InterpreterPool:
    def __init__(self, count_max: int, idle_s: float = IDLE_S) -> None:
        self._count_max = count_max
        self._idle_s = idle_s
        self._entries: dict[Key, _PoolEntry] = {}
        self._ended_keys: NewestDict[Key, None] = NewestDict(REMEMBERED_MAX)

    @asynccontextmanager
    async def borrow_session(
        self, key: Key, start: Callable[[], Awaitable[InterpreterSession]]
    ) -> AsyncGenerator[BorrowedInterpreter]:
        """Lend the key's interpreter, starting one if necessary; other calls of the key wait until the block ends.

        Raises:
            Overloaded: The maximum number of interpreters is in use.
            OSError: It could not be started.
        """
        place = self._entries.get(key) or await self._add_entry(key)
        place.callers += 1
        try:
            # Held while the caller streams: a slow reader holds up the run's next code, as it should.
            async with place.lock:
                has_forgotten = place.session is None and key in self._ended_keys
                place.session = place.session or await start()
                try:
                    yield BorrowedInterpreter(place.session, has_forgotten)
                finally:
                    place.used_at = asyncio.get_running_loop().time()
                    if not place.session.is_alive:
                        place.session = None
                        self._remember_ended(key)
        finally:
            place.callers -= 1
            if place.callers == 0 and place.session is None and self._entries.get(key) is place:
                del self._entries[key]

    async def end_idle(self) -> None:
        """End idle interpreters, until cancelled."""
        while True:
            await asyncio.sleep(self._idle_s / 10)
            oldest = asyncio.get_running_loop().time() - self._idle_s
            # Looked for again after each: while one ends, others are used, or end.
            while (key := next((key for key, place in self._list_idle() if place.used_at <= oldest), None)) is not None:
                await self._end_session(key)

    async def end_all(self) -> None:
        while self._entries:
            await self._end_session(next(iter(self._entries)))

    async def end_of_chat(self, chat_id: str) -> None:
        for key in [key for key in self._entries if key[0] == chat_id]:
            if key in self._entries:
                await self._end_session(key)

    async def _add_entry(self, key: Key) -> _PoolEntry:
        while len(self._entries) >= self._count_max:
            idle = min(self._list_idle(), key=lambda item: item[1].used_at, default=None)
            if idle is None:
                raise Overloaded(f"{self._count_max} interpreters are in use already; try again later")
            await self._end_session(idle[0])
        return self._entries.setdefault(key, _PoolEntry())

    def _list_idle(self) -> list[tuple[Key, _PoolEntry]]:
        return [(key, place) for key, place in self._entries.items() if place.callers == 0]

    async def _end_session(self, key: Key) -> None:
        place = self._entries.pop(key)
        self._remember_ended(key)
        if place.session is not None:
            await place.session.close()
            log.info("interpreter ended", chat_id=key[0], run_id=key[1])

    def _remember_ended(self, key: Key) -> None:
        self._ended_keys[key] = None


@asynccontextmanager
async def run_pool(count_max: int, idle_s: float = IDLE_S) -> AsyncGenerator[InterpreterPool]:
    pool = InterpreterPool(count_max, idle_s)
    async with asyncio.TaskGroup() as group:
        sweeper = guard_task(group.create_task(pool.end_idle()))
        try:
            yield pool
        finally:
            sweeper.cancel()
            await pool.end_all()
