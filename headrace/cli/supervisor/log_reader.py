"""New lines of log files.

Reading files, not pipes, keeps a stopped terminal from delaying services.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

BYTES_MAX = 1 << 20
"""At most so many bytes of a log's end are read at a time."""


class LogReader:
    """Reads logs from their current end on, in one task."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._offsets = {log: _measure_size(log) for log in logs}

    def read_lines(self) -> Iterator[tuple[Path, str]]:
        """Yield each whole line since the last call, with its log."""
        for log in self._offsets:
            for line in self._read_log(log):
                yield log, line

    def _read_log(self, log: Path) -> list[str]:
        """Return one log's new lines; a log that shrank was begun anew."""
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
