"""Time from the machine's clocks, or from a context's own (`CLOCK.set`)."""

from __future__ import annotations

import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Clocks with the functions of the module `time`."""

    def time_ns(self) -> int: ...
    def monotonic(self) -> float: ...
    def thread_time(self) -> float: ...


CLOCK: ContextVar[Clock] = ContextVar("CLOCK", default=time)

TIME_MS_MAX = 253_402_300_799_999
"""The last time that a date can represent, in the year 9999."""


def now_ms() -> int:
    """Return Unix milliseconds, the unit of the contract."""
    return CLOCK.get().time_ns() // 1_000_000


def now_s() -> float:
    """Return Unix seconds."""
    return CLOCK.get().time_ns() / 1e9


def now_utc() -> datetime:
    return datetime.fromtimestamp(now_s(), UTC)


def format_day(time_ms: int) -> str:
    """Format the UTC day of Unix milliseconds, as 2026-11-29."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def monotonic_s() -> float:
    """Return the seconds of a clock that is never set back, for measuring."""
    return CLOCK.get().monotonic()


def thread_time_s() -> float:
    """Return the CPU seconds of this thread."""
    return CLOCK.get().thread_time()


def format_time(time_ms: int) -> str:
    """Format Unix milliseconds by RFC 3339, in UTC; times outside of its range become the nearest one inside."""
    time = datetime.fromtimestamp(min(max(time_ms, 0), TIME_MS_MAX) / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
