"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(time_ms: int) -> str:
    """Format Unix milliseconds in the machine's time zone, to the minute."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).astimezone():%Y-%m-%d %H:%M}"
