"""Memory's folder, which outlives its processes: on tmpfs, with what a power cut may leave of it.

A model of POSIX: bytes that were not synced may be lost in any part, and names that were made, changed or removed since
their folder was synced may be as before, each by itself. Files of SQLite and their logs have kept what was committed
with a sync, and any number of the commits behind it. A kill loses nothing; what it leaves unsynced stays so, until a
start syncs it.
"""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from trials.simulation.plan import MEMORY
from trials.simulation.world.durable import SQLITE, Durable

if TYPE_CHECKING:
    from trials.simulation.story import Story

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


@dataclass(slots=True)
class DiskFaults:
    fails: str = ""
    """Name of the error of each sync; empty: none."""
    has_hit: bool = False
    """Whether this fault has refused a sync."""
    skips_syncs: bool = False
    """Whether syncs do nothing: a planted bug."""
    skips_folders: bool = False
    """Whether syncs of folders do nothing: a planted bug."""
    hides_errors: bool = False
    """Whether a sync that failed is taken for one that was done: a planted bug."""


class Storage:
    """The folder of one memory service; each process of it works in a copy, and the dead keep theirs."""

    def __init__(self, folder: Path, random: Random, story: Story, kill: Callable[[], None]) -> None:
        """`kill` ends the process that syncs."""
        self._folder, self._random, self._story, self._kill = folder, random, story, kill
        self._starts = 0
        self._durable = Durable(random)
        self._log_bytes: dict[str, int] = {}
        """Size of each log of SQLite when it was last synced, by name."""
        self.faults = DiskFaults()
        self.syncs_left: int | None = None
        """Syncs until the power fails; None: it does not."""

    @property
    def data_dir(self) -> Path:
        return self._folder / str(self._starts)

    @property
    def logs_dir(self) -> Path:
        return self.data_dir / "chats"

    def sync(self, fd: int) -> None:
        """Make a file's bytes, or a folder's names, safe, or fail."""
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if not path.is_relative_to(self.data_dir):
            return  # of a process that is dead already
        self._meet_faults()
        if self.faults.skips_syncs or self.faults.fails or (self.faults.skips_folders and path.is_dir()):
            return
        self._durable.sync(path)
        _set_time(path)

    def sync_all(self, _: int) -> None:
        """Make everything safe that is in the folder, or fail."""
        self._meet_faults()
        if not (self.faults.skips_syncs or self.faults.fails):
            self._durable.sync_all()

    def note_commit(self, log: Path) -> None:
        """Take for safe what a log of SQLite has now: a commit with a sync."""
        if log.is_relative_to(self.data_dir):
            self._log_bytes[log.name] = log.stat().st_size

    def _meet_faults(self) -> None:
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

    def read_all(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each file."""
        for path in sorted(self.data_dir.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.data_dir)), path.read_bytes()

    def list_open(self) -> list[str]:
        """Return the files of the newest copy that this program has open."""
        place = str(self.data_dir)
        found: list[str] = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:
                continue  # the listing's own
        return sorted(name.removeprefix(place) for name in found if name.startswith(place))

    def open_next(self) -> Path:
        """Return the data folder for a new process, with what the last one has left."""
        before = self.data_dir
        self._starts += 1
        after = self.data_dir
        if before.exists():
            shutil.copytree(before, after)
            self._durable.follow_copy(before, after)
            for path in sorted(self.logs_dir.glob("*.json")):
                _set_time(path)
        else:
            after.mkdir(parents=True)
            self._durable.root = after
        self._log_bytes = {log.name: self._log_bytes.get(log.name, 0) for log in self._list_logs()}
        return after

    def lose_unsynced(self) -> None:
        """Leave of names and bytes that were not synced any part."""
        if not self.data_dir.exists():
            return
        for what in self._durable.lose_unsynced():
            self._story.tell(f"disk     {what}", count=what.partition(":")[0])
        for log in self._list_logs():
            safe, size = self._log_bytes.get(log.name, 0), log.stat().st_size
            if size > safe:
                os.truncate(log, self._random.choice((safe, self._random.randint(safe, size))))
                name = log.name.partition(".")[0]
                self._story.tell(f"disk     {name} has lost some commits", count=f"{name} cut")

    def _list_logs(self) -> list[Path]:
        return sorted(self.logs_dir.glob(f"*{SQLITE}-wal"))


def _set_time(path: Path) -> None:
    """Give a log a time that follows from its bytes, by which recovery finds what has changed."""
    if path.suffix == ".json":
        time_s = zlib.crc32(path.read_bytes())
        os.utime(path, (time_s, time_s))
