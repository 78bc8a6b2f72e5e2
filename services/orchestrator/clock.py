"""A run's time: it stands while all that the run does is wait for people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager


class Clock:
    """Counts down from `timeout_s`. Used by the tasks of one run."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.waits = 0
        """How many of those that work wait for a person."""
        self._working = 1
        """The run itself, its tasks, sub-agents and calls; without those that stand aside."""
        self._spent_s = 0.0
        self._since: float | None = time.monotonic()
        """When it last began to move; None while it stands."""
        self._moving = asyncio.Event()
        self._moving.set()

    def start(self, spent_s: float = 0.0) -> None:
        """Count from now; `spent_s` was spent before."""
        self._spent_s, self._since = spent_s, time.monotonic()

    @property
    def left_s(self) -> float:
        moved_s = 0.0 if self._since is None else time.monotonic() - self._since
        return max(0.0, self.timeout_s - self._spent_s - moved_s)

    @contextmanager
    def working(self) -> Generator[None]:
        """Something more works inside this block: while it does, the time of those that wait is charged."""
        self._working += 1
        self._update()
        try:
            yield
        finally:
            self._working -= 1
            self._update()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Inside this block who worked until now only waits for others, which work in blocks of their own."""
        self._working -= 1
        try:
            yield
        finally:
            self._working += 1
            self._update()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """A wait for a person, by one of those that work."""
        self.waits += 1
        self._update()
        try:
            yield
        finally:
            self.waits -= 1
            self._update()

    async def run_out(self) -> None:
        """Return when the time is used up."""
        while (left_s := self.left_s) > 0:
            await self._moving.wait()
            await asyncio.sleep(left_s)

    def _update(self) -> None:
        stands = self.waits > 0 and self.waits >= self._working
        if stands and self._since is not None:
            self._spent_s += time.monotonic() - self._since
            self._since = None
            self._moving.clear()
        elif not stands and self._since is None:
            self._since = time.monotonic()
            self._moving.set()
