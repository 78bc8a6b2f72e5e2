"""Counts processes and threads of a command.

The kernel's own limit counts all processes of the user and exempts root, so the filter asks the supervisor before each
new one. Nobody answers during the final sweep, so a fork bomb stands still.
"""

from __future__ import annotations

import os
import time

REFUSED_S = 0.05
"""Time after a refusal in which requests are refused uncounted, because a fork bomb asks without end."""


class Population:
    """Processes of a command; only ones that end between two counts may pass `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = 0
        """Processes alive at the last count, plus all that were allowed since."""
        self._refused_until_s = 0.0

    def may_grow(self) -> bool:
        """Returns whether one more process may start, and counts it."""
        if self._most >= self._limit:
            if time.monotonic() < self._refused_until_s:
                return False
            self._most = count_descendants(os.getpid())
            if self._most >= self._limit:
                self._refused_until_s = time.monotonic() + REFUSED_S
                return False
        self._most += 1
        return True


def count_descendants(ancestor: int) -> int:
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            pid = int(name)
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[pid], threads[pid] = int(fields[1]), int(fields[17])
    return sum(count for pid, count in threads.items() if _is_below(pid, ancestor, parents))


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    # Ids reused while we read may form a ring of parents, so the way is bounded by their number.
    for _ in parents:
        pid = parents.get(pid, 0)
        if pid in (0, ancestor):
            break
    return pid == ancestor
