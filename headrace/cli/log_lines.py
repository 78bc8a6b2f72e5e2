"""The lines that are new in some logs since the last look.

The files are looked at, not the services' pipes, so that a terminal that is held up holds nobody up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

BYTES_MAX = 1 << 20
"""Of one log, at one look. What a service says beyond that in so short a time stays in its log alone."""


class LogLines:
    """Reads logs from where they end when this is made. Belongs to one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._read = {log: log.stat().st_size if log.exists() else 0 for log in logs}

    def new(self) -> Iterator[tuple[Path, str]]:
        """Each whole line that has been written since the last look, with its log."""
        for log in self._read:
            for line in self._lines(log):
                yield log, line

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
