"""Reports errors in the services' logs on the terminal of `headrace up`."""

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
"""Log fields that explain an error, in the order of a sentence."""


class ErrorReports:
    """Errors logged after its creation, read by one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._reader = LogReader(logs)

    async def report_errors(self, report: Callable[[str], None]) -> None:
        while True:
            for text in self.read_errors():
                report(text)
            await asyncio.sleep(READ_EVERY_S)

    def read_errors(self) -> Iterator[str]:
        for log, line in self._reader.read_lines():
            if (text := describe_log_error(line)) is not None:
                yield f"{_find_service(line) or log.stem}: {text} (log: {log})"


def describe_log_error(line: str) -> str | None:
    """Return a log line of level error or above as a sentence; None for other lines."""
    try:
        fields = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return None
    if not isinstance(fields, dict) or fields.get("level") not in ("error", "critical"):
        return None
    texts = [_describe_field(fields[name]) for name in FIELDS if fields.get(name)]
    return re.sub(r"\s+", " ", ": ".join([str(fields.get("event")), *texts]))


def _find_service(line: str) -> str | None:
    """Return the service that a JSON line is of, where several share a log; None if it does not say."""
    service = msgspec.json.decode(line).get("service")
    return service if isinstance(service, str) else None


def _describe_field(value: Any) -> str:
    """Return a field as text; of an exception (structlog's list, outermost first) the type alone."""
    match value:
        case [{"exc_type": kind}, *_]:
            return str(kind)
        case [*items]:
            return "; ".join(str(item) for item in items)
        case _:
            return str(value)
