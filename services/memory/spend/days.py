"""Days of a calendar, UTC, as numbers since 1970-01-01 and as ISO 8601 writes them."""

from __future__ import annotations

import re
from datetime import date, timedelta

from headrace.errors import InvalidRequest
from services.memory.storage.spend import DAY_MS

DAYS_DEFAULT = 30
DAYS_MAX = 366

_FIRST = date(1970, 1, 1)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def format_day(day: int) -> str:
    return (_FIRST + timedelta(days=day)).isoformat()


def parse_days(first: str, last: str, now: int) -> tuple[int, int]:
    """Return the first and the last day that are meant, where empty texts are the last 30 before `now`, Unix
    milliseconds.

    Raises:
        InvalidRequest: They are no days, in the wrong order or too many.
    """
    to_day = _parse_day("toDay", last) if last else now // DAY_MS
    from_day = _parse_day("fromDay", first) if first else to_day - DAYS_DEFAULT + 1
    if not from_day <= to_day < from_day + DAYS_MAX:
        raise InvalidRequest.of("fromDay", f"must be 0 to {DAYS_MAX - 1} days before toDay")
    return from_day, to_day


def _parse_day(field: str, text: str) -> int:
    try:
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        day = (date.fromisoformat(text) - _FIRST).days
        if day < DAYS_MAX:
            raise ValueError(text)  # nothing was counted then, and earlier days may have no date
        return day
    except ValueError as error:
        raise InvalidRequest.of(field, f"{text!r}: expected a day such as 2026-11-23") from error
