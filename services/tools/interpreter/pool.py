"""All live interpreters, one for each chat's run: found by key, used in turn, ended when nobody uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from headrace.errors import Overloaded
from services.tools.interpreter.session import Session

log = structlog.get_logger()

IDLE_S = 600.0
"""Nothing tells that a run has ended; a model that comes back after so long starts anew."""

REMEMBERED_MAX = 1000
"""Keys whose interpreter has ended, to say so when they come back."""

Key = tuple[str, str]
"""Chat and run."""


@dataclass(slots=True)
class _Place:
    """One key's interpreter, and the calls that want it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0
    """Using it or waiting for their turn."""

    used_at: float = 0.0
    """Of the loop's clock."""

    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Borrowed:
    session: Session
    has_forgotten: bool
    """It is new, and took the place of one that the run had before."""


class Interpreters:
    """One for the service; ends all of them when its block is left (`interpreters`)."""

    def __init__(self, count_max: int, idle_s: float = IDLE_S) -> None:
        self._count_max = count_max
        self._idle_s = idle_s
        self._places: dict[Key, _Place] = {}
        self._ended: dict[Key, None] = {}

    @asynccontextmanager
    async def borrowing(self, key: Key, start: Callable[[], Awaitable[Session]]) -> AsyncGenerator[Borrowed]:
        """The key's interpreter for the block, started when there is none; others of the key wait.

        Raises:
            Overloaded: As many as may live are in use.
            OSError: It could not be started.
        """
        place = self._places.get(key) or await self._new_place(key)
        place.callers += 1
        try:
            # Held while the caller streams: a reader who is slow does hold up the next piece of code, rightly.
            async with place.lock:
                has_forgotten = place.session is None and key in self._ended
                place.session = place.session or await start()
                try:
                    yield Borrowed(place.session, has_forgotten)
                finally:
                    place.used_at = asyncio.get_running_loop().time()
                    if not place.session.is_alive:
                        place.session = None
                        self._remember(key)
        finally:
            place.callers -= 1
            if place.callers == 0 and place.session is None:
                self._places.pop(key, None)

    async def end_idle(self) -> None:
        """Until cancelled: end those that nobody has used for the idle time."""
        while True:
            await asyncio.sleep(self._idle_s / 10)
            oldest = asyncio.get_running_loop().time() - self._idle_s
            for key in [key for key, place in self._idle() if place.used_at <= oldest]:
                await self._end(key)

    async def end_all(self) -> None:
        """For the end of the service, when no call is left."""
        for key in list(self._places):
            await self._end(key)

    async def _new_place(self, key: Key) -> _Place:
        while len(self._places) >= self._count_max:
            idle = min(self._idle(), key=lambda item: item[1].used_at, default=None)
            if idle is None:
                raise Overloaded(f"{self._count_max} interpreters are in use already; try again later")
            await self._end(idle[0])
        return self._places.setdefault(key, _Place())

    def _idle(self) -> list[tuple[Key, _Place]]:
        return [(key, place) for key, place in self._places.items() if place.callers == 0]

    async def _end(self, key: Key) -> None:
        place = self._places.pop(key)
        self._remember(key)
        if place.session is not None:
            await place.session.close()
            log.info("interpreter ended", chat_id=key[0], run_id=key[1])

    def _remember(self, key: Key) -> None:
        self._ended[key] = None
        if len(self._ended) > REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]


@asynccontextmanager
async def interpreters(count_max: int, idle_s: float = IDLE_S) -> AsyncGenerator[Interpreters]:
    """Inside the block interpreters live; leaving it ends all of them."""
    found = Interpreters(count_max, idle_s)
    async with asyncio.TaskGroup() as group:
        sweeper = group.create_task(found.end_idle())
        try:
            yield found
        finally:
            sweeper.cancel()
            await found.end_all()
