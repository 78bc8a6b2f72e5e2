"""Terminal output: safe printing, times and costs."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click

from headrace.shown_text import isolate, make_visible
from headrace.v1 import agent_pb2, common_pb2

CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Translation table for str.translate that removes characters which control the terminal."""


def print_text(text: str) -> None:
    """Print text without characters that would control the terminal."""
    click.echo(text.translate(CONTROLS))


def print_shown(text: str) -> None:
    """Print text that a user decides about, with hidden and reordering characters made visible."""
    click.echo(show_text(text))


def show_text(text: str) -> str:
    """Return the text with hidden characters visible.

    Only a terminal gets isolate characters, because a program would take them for part of the text.
    """
    visible = make_visible(text)
    return isolate(visible) if sys.stdout.isatty() else visible


TIME_S_MAX = 253_402_214_400.0
"""Largest time that can be formatted in any time zone: a day before the end of the year 9999."""


class Instant(click.ParamType[int]):
    """A time: ISO 8601, or an offset from now such as 90s, 15m, 2h, 3d.

    Without an offset from UTC it is a time of the command's eager option `time_zone`, or else of the local zone.
    """

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
                moment = datetime.fromisoformat(text)
                if moment.tzinfo is None and ctx is not None and (zone := ctx.params.get("time_zone")):
                    with suppress(KeyError, ValueError, OSError):  # the server refuses what is no zone
                        moment = moment.replace(tzinfo=ZoneInfo(zone))
            return int(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(
                f"{text!r} is neither a time such as 2030-01-31T09:30 nor one from now on such as 15m", param, ctx
            )


def format_time(time_ms: int, zone: str | None = None) -> str:
    """Return Unix milliseconds as local time, to the minute, clamped to the range of datetime.

    With `zone`, return the time of that zone and its name; the local zone if it is empty, or if this machine does not
    know it.
    """
    time_s = min(max(time_ms / 1000, 0), TIME_S_MAX)
    where: ZoneInfo | None = None
    with suppress(KeyError, ValueError, OSError):
        where = ZoneInfo(zone) if zone else None
    moment = datetime.fromtimestamp(time_s, UTC).astimezone(where)
    return f"{moment:%Y-%m-%d %H:%M}" + ("" if zone is None else f" {where or moment.tzname()}")


def describe_usage(usage: common_pb2.Usage) -> str:
    parts = [f"{usage.input_tokens} tokens in, {usage.output_tokens} out", _count(usage.model_calls, "model call")]
    if usage.tool_calls:
        parts.append(_count(usage.tool_calls, "tool call"))
    if usage.HasField("cost_usd"):
        parts.append(f"${usage.cost_usd:.4f}")
    return ", ".join(parts) + (" (estimated)" if usage.estimated else "")


def describe_budget(left: agent_pb2.BudgetLeft) -> str:
    parts = [_count(left.model_calls, "model call"), _count(left.tool_calls, "tool call"), f"{left.time_ms // 1000} s"]
    if left.HasField("tokens"):
        parts.append(f"{left.tokens} tokens")
    if left.HasField("cost_usd"):
        parts.append(f"${left.cost_usd:.4f}")
    return f"left: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
