"""Times as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

TIME_S_MAX = 253_402_214_400.0
"""The last day that a date has, in the year 9999, before its end in any time zone."""


class Instant(click.ParamType[int]):
    """A time: ISO 8601, in the machine's zone if it names none, or from now on as 90s, 15m, 2h, 3d."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        text = str(value)
        try:
            if text[-1:] in units and text[:-1].isdecimal():
                moment = datetime.now(UTC) + timedelta(**{units[text[-1]]: int(text[:-1])})
            else:
                moment = datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{text!r} is neither a time such as 2030-01-31T09:30 nor one from now on such as 15m", param, ctx
            )
        return int(moment.timestamp() * 1000)


def format_time(time_ms: int) -> str:
    """Format Unix milliseconds in the machine's time zone, to the minute, or the nearest time that a date has."""
    time_s = min(max(time_ms / 1000, 0), TIME_S_MAX)
    return f"{datetime.fromtimestamp(time_s, UTC).astimezone():%Y-%m-%d %H:%M}"
