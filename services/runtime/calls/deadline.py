"""The deadline of a call, at either end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    __slots__ = ("_due_s", "_loop", "_timer")

    def __init__(self, timeout_s: float, on_passed: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time() + timeout_s
        self._timer = self._loop.call_later(max(timeout_s, 0), on_passed)

    @property
    def remaining_s(self) -> float:
        return max(self._due_s - self._loop.time(), 0.0)

    def cancel(self) -> None:
        self._timer.cancel()
