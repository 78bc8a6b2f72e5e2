"""Text for a terminal: safe printing, times and costs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from headrace.shown_text import isolate, make_visible
from headrace.v1 import agent_pb2, common_pb2

CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would control the terminal, for str.translate."""


def print_text(text: str) -> None:
    """Print a line, or several, without characters that would control the terminal."""
    click.echo(text.translate(CONTROLS))


def print_shown(text: str) -> None:
    """Print what a person decides about: all that would hide or reorder it is visible."""
    click.echo(show_text(text))


def show_text(text: str) -> str:
    """Return the text as it is to be read; only a terminal gets isolates, which a program would take for text."""
    visible = make_visible(text)
    return isolate(visible) if sys.stdout.isatty() else visible


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
