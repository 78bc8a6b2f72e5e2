"""Memory's folder, which outlives its processes: it is on tmpfs, and a power cut may lose unsynced parts of it.

It models POSIX: any part of the unsynced bytes may be lost, and each name that was created, changed or removed since
its folder was synced may revert. SQLite files and their logs keep each commit with a sync, and any number of the
commits after it. A kill loses nothing; unsynced data stay unsynced until a start syncs them.
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
    """Name of each sync's error; empty: syncs succeed."""
    has_hit: bool = False
    """Whether this fault has refused a sync."""
    skips_syncs: bool = False
    """Whether syncs do nothing: a planted bug."""
    skips_folders: bool = False
    """Whether syncs of folders do nothing: a planted bug."""
    hides_errors: bool = False
    """Whether a failed sync counts as done: a planted bug."""


class Storage:
    """The folder of one memory service; each process works in a new copy, and dead processes keep theirs."""

    def __init__(self, folder: Path, random: Random, story: Story, kill: Callable[[], None]) -> None:
        """Create the storage; `kill` ends the process that syncs."""
        self._folder, self._random, self._story, self._kill = folder, random, story, kill
        self._starts = 0
        self._durable = Durable(random)
        self._log_bytes: dict[str, int] = {}
        """Size of each log of SQLite when it was last synced, by name."""
        self.faults = DiskFaults()
        self.syncs_left: int | None = None
        """Syncs until the power fails; None: it does not fail."""

    @property
    def data_dir(self) -> Path:
        return self._folder / str(self._starts)

    @property
    def logs_dir(self) -> Path:
        return self.data_dir / "chats"

    def sync(self, fd: int) -> None:
        """Make the bytes of a file, or the names of a folder, durable, or fail."""
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if not path.is_relative_to(self.data_dir):
            return  # of a process that is dead already
        self._meet_faults()
        if self.faults.skips_syncs or self.faults.fails or (self.faults.skips_folders and path.is_dir()):
            return
        self._durable.sync(path)
        _set_time(path)

    def sync_all(self, _: int) -> None:
        """Make the whole folder durable, or fail."""
        self._meet_faults()
        if not (self.faults.skips_syncs or self.faults.fails):
            self._durable.sync_all()

    def note_commit(self, log: Path) -> None:
        """Mark the current content of a SQLite log as durable: a commit with a sync."""
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
        """Return the files of the newest copy that this program holds open."""
        place = str(self.data_dir)
        found: list[str] = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:
                continue  # the listing's own
        return sorted(name.removeprefix(place) for name in found if name.startswith(place))

    def open_next(self) -> Path:
        """Return the data folder for a new process, with the files of the last process."""
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
        """Lose a random part of the unsynced names and bytes."""
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
    """Set a log's time from its bytes, by which recovery detects changes."""
    if path.suffix == ".json":
        time_s = zlib.crc32(path.read_bytes())
        os.utime(path, (time_s, time_s))
