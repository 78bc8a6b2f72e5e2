"""Clocks that a test moves."""

import time

from services.memory.data.retention import DAY_S


class Later:
    """The machine's clocks, some days from now."""

    def __init__(self, days: float) -> None:
        self._ns = round(days * DAY_S * 1e9)

    def time_ns(self) -> int:
        return time.time_ns() + self._ns

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_time(self) -> float:
        return time.thread_time()
