"""Errors in the services' logs, reported on the terminal of `headrace up`: above all a file that was saved with one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.cli.supervisor.log_reader import LogReader

READ_EVERY_S = 0.3

FIELDS = ("file", "tool", "problem", "problems", "error", "exception")
"""Fields of a log line that say what went wrong, in the order of a sentence."""


class ErrorReports:
    """The errors that are logged after this is made. Belongs to one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._reader = LogReader(logs)

    async def report_errors(self, report: Callable[[str], None]) -> None:
        """Report each error once, until cancelled."""
        while True:
            for text in self.read_errors():
                report(text)
            await asyncio.sleep(READ_EVERY_S)

    def read_errors(self) -> Iterator[str]:
        """The errors since the last call."""
        for log, line in self._reader.read_lines():
            if (text := describe_log_error(line)) is not None:
                yield f"{log.stem}: {text} (log: {log})"


def describe_log_error(line: str) -> str | None:
    """A log line of level error or above as a sentence; None for any other line."""
    try:
        fields = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return None
    if not isinstance(fields, dict) or fields.get("level") not in ("error", "critical"):
        return None
    texts = [_describe_field(fields[name]) for name in FIELDS if fields.get(name)]
    return re.sub(r"\s+", " ", ": ".join([str(fields.get("event")), *texts]))


def _describe_field(value: Any) -> str:
    """A field as text; for an exception (structlog's list, the outermost first) its type alone."""
    match value:
        case [{"exc_type": kind}, *_]:
            return str(kind)
        case [*items]:
            return "; ".join(str(item) for item in items)
        case _:
            return str(value)
