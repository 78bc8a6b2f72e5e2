"""One interpreter for each run of a chat."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from headrace.errors import Overloaded
from services.runtime.auth.identity import current_tenant
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
    tenant: str
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
    def __init__(self, count_max: int, idle_s: float = IDLE_S, *, is_shared: bool = False) -> None:
        """With `is_shared` several tenants call: of those in use, each may have as many as it leaves free."""
        self._count_max = count_max
        self._is_shared = is_shared
        self._idle_s = idle_s
        self._entries: dict[Key, _PoolEntry] = {}
        self._ended_keys: NewestDict[Key, None] = NewestDict(REMEMBERED_MAX)

    @asynccontextmanager
    async def borrow_session(
        self, key: Key, start: Callable[[], Awaitable[InterpreterSession]]
    ) -> AsyncGenerator[BorrowedInterpreter]:
        """Lend the key's interpreter, starting one if necessary; other calls of the key wait until the block ends.

        Raises:
            Overloaded: The maximum number of interpreters is in use, or the tenant has its share.
            OSError: It could not be started.
        """
        used = [place.tenant for other, place in self._entries.items() if place.callers and other != key]
        if self._is_shared and self._count_max - len(used) <= used.count(current_tenant()):
            raise Overloaded(f"{len(used)} interpreters are in use already; try again later")
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
        tenant = current_tenant()
        while len(self._entries) >= self._count_max:
            counts = Counter([tenant, *(place.tenant for place in self._entries.values())])
            # Nobody ends one of a tenant that has fewer.
            idle = [one for one in self._list_idle() if counts[one[1].tenant] >= counts[tenant]]
            if not idle:
                raise Overloaded(f"{self._count_max} interpreters are in use already; try again later")
            await self._end_session(min(idle, key=lambda one: (-counts[one[1].tenant], one[1].used_at))[0])
        return self._entries.setdefault(key, _PoolEntry(tenant))

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
async def run_pool(
    count_max: int, idle_s: float = IDLE_S, *, is_shared: bool = False
) -> AsyncGenerator[InterpreterPool]:
    pool = InterpreterPool(count_max, idle_s, is_shared=is_shared)
    async with asyncio.TaskGroup() as group:
        sweeper = guard_task(group.create_task(pool.end_idle()))
        try:
            yield pool
        finally:
            sweeper.cancel()
            await pool.end_all()
