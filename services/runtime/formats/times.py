"""Times as text."""

from __future__ import annotations

from datetime import UTC, datetime

TIME_MS_MAX = 253_402_300_799_999
"""The last time that a date has, in the year 9999."""


def format_time(time_ms: int) -> str:
    """Return Unix milliseconds as RFC 3339 has them, in UTC; a time that no date has, as logs of others may hold, is
    told as the nearest one."""
    time = datetime.fromtimestamp(min(max(time_ms, 0), TIME_MS_MAX) / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
