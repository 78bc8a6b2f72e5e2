"""What the services log as errors, told to the person before `headrace up`: a file just saved and refused, above all.

The log files are looked at, not the services' pipes, so that a terminal that is held up holds nobody up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

LOOK_EVERY_S = 0.3

BYTES_MAX = 1 << 20
"""Of one log, at one look. What a service says beyond that in so short a time stays in its log alone."""

FACTS = ("file", "tool", "problem", "problems", "error", "exception")
"""The fields that say what went wrong, in the order of a sentence."""


class Complaints:
    """Reads logs from where they end when this is made. Belongs to one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._read = {log: log.stat().st_size if log.exists() else 0 for log in logs}

    async def tell(self, say: Callable[[str], None]) -> None:
        """Say each error once, until cancelled."""
        while True:
            for complaint in self.new():
                say(complaint)
            await asyncio.sleep(LOOK_EVERY_S)

    def new(self) -> Iterator[str]:
        """The errors that have been logged since the last look."""
        for log in self._read:
            for line in self._lines(log):
                if (complaint := sentence(line)) is not None:
                    yield f"{log.stem}: {complaint} (log: {log})"

    def _lines(self, log: Path) -> list[str]:
        """The whole lines that are new in `log`; a log that has shrunk was begun anew."""
        try:
            size = log.stat().st_size
            start = self._read[log] if size >= self._read[log] else 0
            start = max(start, size - BYTES_MAX)
            with log.open("rb") as file:
                file.seek(start)
                said = file.read(BYTES_MAX)
        except FileNotFoundError:
            return []
        whole = said[: said.rfind(b"\n") + 1]
        self._read[log] = start + len(whole)
        return whole.decode(errors="replace").splitlines()


def sentence(line: str) -> str | None:
    """A log line of level error or above in words; None for any other line."""
    try:
        facts = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return None
    if not isinstance(facts, dict) or facts.get("level") not in ("error", "critical"):
        return None
    told = [_text(facts[name]) for name in FACTS if facts.get(name)]
    return re.sub(r"\s+", " ", ": ".join([str(facts.get("event")), *told]))


def _text(fact: Any) -> str:
    """A fact as text; of an exception (structlog's list, the outermost first) the type alone."""
    match fact:
        case [{"exc_type": kind}, *_]:
            return str(kind)
        case [*items]:
            return "; ".join(str(item) for item in items)
        case _:
            return str(fact)
