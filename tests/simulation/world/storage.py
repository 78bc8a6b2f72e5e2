"""Memory's folder, which outlives its processes: on tmpfs, with what a power cut may leave of it.

Only the logs' bytes are modelled: a sync that was not done, or was not told of, loses any part of them. SQLite's index
and the names of files are as after a kill.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.story import Story

SECTOR = 512

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong from now on."""

    fails: str = ""
    """Name of the error of each sync; empty: none."""
    is_lying: bool = False
    """Whether syncs do nothing: a planted bug."""


class Storage:
    """The folder of one memory service; each process of it works in a copy, and the dead keep theirs."""

    def __init__(self, folder: Path, random: Random, story: Story) -> None:
        self._folder, self._random, self._story = folder, random, story
        self._starts = 0
        self._synced: dict[str, bytes] = {}
        """What each log had when it was last synced."""
        self.faults = DiskFaults()

    @property
    def current(self) -> Path:
        return self._folder / str(self._starts)

    def sync(self, fd: int) -> None:
        """Make a file's bytes safe, or fail."""
        if self.faults.fails:
            self._story.counts[f"disk {self.faults.fails}"] += 1
            raise OSError(ERRORS[self.faults.fails], os.strerror(ERRORS[self.faults.fails]))
        if not self.faults.is_lying:
            name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
            self._synced[name] = _read_fd(fd)

    def open_next(self) -> Path:
        """Return the folder for a new process, with what the last one has left."""
        before = self.current
        self._starts += 1
        if before.exists():
            shutil.copytree(before, self.current)
        else:
            self.current.mkdir(parents=True)
        return self.current

    def cut_power(self) -> None:
        """Leave of each log any bytes between what was synced and what was written."""
        folder = self.current / "chats"
        for path in sorted(folder.glob("*.json")) if folder.exists() else ():
            written, synced = path.read_bytes(), self._synced.get(path.name, b"")
            if written != synced:
                path.write_bytes(self._tear(synced, written))
                self._story.tell(f"disk     {path.name[:4]} lost up to {len(written) - len(synced)} unsynced bytes")

    def _tear(self, synced: bytes, written: bytes) -> bytes:
        size = self._random.choice((len(synced), len(written), self._random.randint(len(synced), len(written))))
        torn = bytearray(written[:size])
        for start in range(len(synced) // SECTOR * SECTOR, size, SECTOR):
            if self._random.random() < 0.3:
                end = min(start + SECTOR, size)
                torn[start:end] = synced[start:end].ljust(end - start, b"\0")
        return bytes(torn)


def _read_fd(fd: int) -> bytes:
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read()
