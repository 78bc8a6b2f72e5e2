"""Follows the services' logs and reports errors, and progress during a slow start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

BYTES_MAX = 1 << 20
"""Maximum number of bytes read from a log's end at a time."""


class LogReader:
    """Reads logs from their current end on, in one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._offsets = {log: _measure_size(log) for log in logs}

    def read_lines(self) -> Iterator[tuple[Path, str]]:
        """Yield each complete line since the last call, with its log."""
        for log in self._offsets:
            for line in self._read_log(log):
                yield log, line

    def _read_log(self, log: Path) -> list[str]:
        """Return one log's new lines; a log that shrank was truncated and is read from its start."""
        try:
            size = log.stat().st_size
            start = self._offsets[log] if size >= self._offsets[log] else 0
            start = max(start, size - BYTES_MAX)
            with log.open("rb") as file:
                file.seek(start)
                data = file.read(BYTES_MAX)
        except OSError:
            return []  # read again the next time
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[log] = start + len(whole)
        return whole.decode(errors="replace").splitlines()


def _measure_size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


READ_EVERY_S = 0.3

BUSY = "event loop busy"
"""Event of a warning that is shown, too: only the operator can give the work another core."""

FIELDS = ("file", "server", "tool", "problem", "problems", "stderr", "error", "exception")
"""Log fields that explain an error, in the order of a sentence."""


class ErrorReports:
    """Errors logged after its creation; for use by one task."""

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
    """Return a log line of level error or above, or about a busy core, as a sentence; None for other lines."""
    try:
        fields = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("level") not in ("error", "critical") and fields.get("event") != BUSY:
        return None
    texts = [_describe_field(fields[name]) for name in FIELDS if fields.get(name)]
    return re.sub(r"\s+", " ", ": ".join([str(fields.get("event")), *texts]))


def _find_service(line: str) -> str | None:
    """Return the service named in a JSON log line, which several services may share; None if there is no name."""
    service = msgspec.json.decode(line).get("service")
    return service if isinstance(service, str) else None


def _describe_field(value: Any) -> str:
    """Return a field as text; for an exception (structlog's list, outermost first), only its type."""
    match value:
        case [{"exc_type": kind}, *_]:
            return str(kind)
        case [*items]:
            return "; ".join(str(item) for item in items)
        case _:
            return str(value).replace("\n", "; ")


class _Indexing(msgspec.Struct, tag_field="event", tag="indexing"):
    """The memory service's log line about indexing progress."""

    service: str
    chats_done: int
    chats: int


_INDEXING = msgspec.json.Decoder(_Indexing)


def describe_progress(logs: LogReader) -> Iterator[str]:
    """Yield sentences about the progress since the last call."""
    for _, line in logs.read_lines():
        with suppress(msgspec.MsgspecError):  # any other line
            progress = _INDEXING.decode(line)
            yield f"{progress.service}: indexing, {progress.chats_done} of {progress.chats} chats"
