"""Memory's folder, which outlives its processes: on tmpfs, with what a power cut may leave of it.

Only the logs' bytes are modelled: what was written and not synced loses any part. SQLite's index, names of files, and
what is written whole (blobs, rewritten logs) are as after a kill. A start syncs all that it reads.
"""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.plan import MEMORY

if TYPE_CHECKING:
    from tests.simulation.story import Story

SECTOR = 512

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


@dataclass(slots=True)
class DiskFaults:
    fails: str = ""
    """Name of the error of each sync; empty: none."""
    has_hit: bool = False
    """Whether this fault has refused a sync."""
    skips_syncs: bool = False
    """Whether syncs do nothing: a planted bug."""
    hides_errors: bool = False
    """Whether a sync that failed is taken for one that was done: a planted bug."""


class Storage:
    """The folder of one memory service; each process of it works in a copy, and the dead keep theirs."""

    def __init__(self, folder: Path, random: Random, story: Story, kill: Callable[[], None]) -> None:
        """`kill` ends the process that syncs."""
        self._folder, self._random, self._story, self._kill = folder, random, story, kill
        self._starts = 0
        self._synced: dict[str, bytes] = {}
        """What each log had when it was last synced."""
        self.faults = DiskFaults()
        self.syncs_left: int | None = None
        """Syncs until the power fails; None: it does not."""

    @property
    def logs_dir(self) -> Path:
        return self._folder / str(self._starts) / "chats"

    def sync(self, fd: int) -> None:
        """Make a file's bytes safe, or fail."""
        if self.syncs_left is not None:
            self.syncs_left -= 1
            if self.syncs_left <= 0:
                self._kill()
        if self.faults.fails and not self.faults.hides_errors:
            code = ERRORS[self.faults.fails]
            self._story.counts[f"sync {self.faults.fails}"] += 1
            if not self.faults.has_hit:
                self.faults.has_hit = True
                self._story.bite(self.faults.fails, MEMORY)
            raise OSError(code, os.strerror(code))
        if not (self.faults.skips_syncs or self.faults.fails):
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self._synced[path.name] = _set_time(path)

    def open_next(self) -> Path:
        """Return the data folder for a new process, with what the last one has left."""
        before = self._folder / str(self._starts)
        self._starts += 1
        after = self._folder / str(self._starts)
        if before.exists():
            shutil.copytree(before, after)
            read = {path.name: _set_time(path) for path in sorted(self.logs_dir.glob("*.json"))}
            if not self.faults.skips_syncs:
                self._synced = read
        else:
            after.mkdir(parents=True)
        return after

    def lose_unsynced(self) -> None:
        """Leave of each log any bytes between what was synced and what was written."""
        for path in sorted(self.logs_dir.glob("*.json")) if self.logs_dir.exists() else ():
            written, synced = path.read_bytes(), self._synced.get(path.name, b"")
            if len(written) > len(synced) and written.startswith(synced):
                path.write_bytes(self._tear(synced, written))
                lost = f"{path.name[:4]} has lost some of {len(written) - len(synced)} unsynced bytes"
                self._story.tell(f"disk     chat {lost}", count="torn log")

    def _tear(self, synced: bytes, written: bytes) -> bytes:
        size = self._random.choice((len(synced), len(written), self._random.randint(len(synced), len(written))))
        torn = bytearray(written[:size])
        for start in range(len(synced) // SECTOR * SECTOR, size, SECTOR):
            if self._random.random() < 0.3:
                end = min(start + SECTOR, size)
                torn[start:end] = synced[start:end].ljust(end - start, b"\0")
        return bytes(torn)


def _set_time(log: Path) -> bytes:
    """Give a log a time that follows from its bytes, by which recovery finds what has changed; return the bytes."""
    data = log.read_bytes()
    time_s = zlib.crc32(data)
    os.utime(log, (time_s, time_s))
    return data
