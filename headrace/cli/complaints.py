"""What the services log as errors, told to the person before `headrace up`: above all a file saved and refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.cli.log_lines import LogLines

LOOK_EVERY_S = 0.3

FACTS = ("file", "tool", "problem", "problems", "error", "exception")
"""The fields that say what went wrong, in the order of a sentence."""


class Complaints:
    """Reads logs from where they end when this is made. Belongs to one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._lines = LogLines(logs)

    async def tell(self, say: Callable[[str], None]) -> None:
        """Say each error once, until cancelled."""
        while True:
            for complaint in self.new():
                say(complaint)
            await asyncio.sleep(LOOK_EVERY_S)

    def new(self) -> Iterator[str]:
        """The errors that have been logged since the last look."""
        for log, line in self._lines.new():
            if (complaint := sentence(line)) is not None:
                yield f"{log.stem}: {complaint} (log: {log})"


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
