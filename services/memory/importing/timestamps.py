from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

SECONDS_MAX = 100_000_000_000
"""Greater numbers are milliseconds: as seconds they would be after the year 5000."""


def to_milliseconds(value: Any) -> int:
    """Convert seconds, milliseconds or ISO text to Unix milliseconds; 0 if it is no time."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float) and 0 < value < 1e15:
        return int(value if value > SECONDS_MAX else value * 1000)
    if isinstance(value, str):
        if value.isdecimal():
            return to_milliseconds(int(value[:16]))
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return 0
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    return 0
