"""The run's elapsed time, which pauses while all its work waits for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from services.runtime.clock import monotonic_s


class Clock:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.waits = 0
        self._working = 1
        """Number of active workers, without those set aside."""
        self._spent_s = 0.0
        self._since: float | None = monotonic_s()
        self._ring: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] = lambda: None
        """Called whenever the clock pauses."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, spent_s: float = 0.0) -> None:
        self._spent_s, self._since = spent_s, monotonic_s()

    @property
    def is_paused(self) -> bool:
        return self._since is None

    @property
    def left_s(self) -> float:
        moved_s = 0.0 if self._since is None else monotonic_s() - self._since
        return max(0.0, self.timeout_s - self._spent_s - moved_s)

    @contextmanager
    def working(self) -> Generator[None]:
        """Count one more worker; time passes even during waits while it works."""
        self._working += 1
        self._update()
        try:
            yield
        finally:
            self._working -= 1
            self._update()

    @contextmanager
    def aside(self) -> Generator[None]:
        self._working -= 1
        try:
            yield
        finally:
            self._working += 1
            self._update()

    @contextmanager
    def waiting(self) -> Generator[None]:
        self.waits += 1
        self._update()
        try:
            yield
        finally:
            self.waits -= 1
            self._update()

    def watch(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._set_timer()

    def unwatch(self) -> None:
        self._ring = None
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ring is not None and self._since is not None:
            self._timer = asyncio.get_running_loop().call_later(self.left_s, self._check_time)

    def _check_time(self) -> None:
        if self.left_s > 0 or self._ring is None:
            self._set_timer()  # loops are up to a millisecond early
        else:
            self._ring()

    def _update(self) -> None:
        must_pause = self.waits > 0 and self.waits >= self._working
        if must_pause and self._since is not None:
            self._spent_s += monotonic_s() - self._since
            self._since = None
            self.on_pause()
        elif not must_pause and self._since is None:
            self._since = monotonic_s()
            self._set_timer()
