"""Periods of budgets: days and months of the calendar, UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.memory.storage.spend import DAY_MS


@dataclass(frozen=True, slots=True)
class Period:
    name: str
    """Such as 2026-11-23 or 2026-11."""
    first_day: int
    last_day: int
    """Days since 1970-01-01, both included."""

    @property
    def ends_at(self) -> int:
        """Return when the next one begins, Unix milliseconds."""
        return (self.last_day + 1) * DAY_MS


def find_period(word: str, now: int) -> Period:
    """Return the day or month of `now`, Unix milliseconds."""
    today = now // DAY_MS
    date = datetime.fromtimestamp(now / 1000, UTC).date()
    if word == "day":
        return Period(date.isoformat(), today, today)
    first = today - date.day + 1
    after = (date.replace(day=28) + timedelta(days=4)).replace(day=1)
    return Period(f"{date:%Y-%m}", first, first + (after - date.replace(day=1)).days - 1)
