"""A clock that tests move forward."""

import time
from dataclasses import dataclass


@dataclass
class MovedClock:
    """The machine's clocks, moved forward by the test."""

    ahead_s: float = 0.0

    def time_ns(self) -> int:
        return time.time_ns() + int(self.ahead_s * 1e9)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    def thread_time(self) -> float:
        return time.thread_time()
