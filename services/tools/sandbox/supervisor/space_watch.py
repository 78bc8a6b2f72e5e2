"""Measures folders' use of the disk while a command changes them, with at most a twentieth of a processor.

Without privileges the kernel cannot limit a folder: RLIMIT_FSIZE bounds one file, and quotas need a file system with
project quotas.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EXDEV
from typing import NamedTuple

from services.tools.sandbox.supervisor.kernel import open_beneath

STEP_ENTRIES = 200
"""Entries per step, which takes about a millisecond."""

BLOCK_BYTES = 512

PATH_CHARS_MAX = 900
"""Length at which paths are restarted from an opened folder, because the kernel accepts 4,095 bytes."""

_GONE = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV})
"""Errors of a folder that was removed or swapped since its name was read."""

SLICE_S = 0.002
"""Processor time of one look, during which the command's own requests wait (notifications.py)."""

PAUSE_RATIO, PAUSE_RATIO_SUSPECT = 19, 1
"""Pause after a look, as a multiple of its processor time; the second one applies while the file system has lost so
much room that this command may be the cause."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.02, 0.5

FASTEST_BYTES_S, FASTEST_FILES_S = 2 * 1024**3, 200_000
"""Maximum speed at which a command may fill a disk; if there is much room, the next look can wait."""

GROWTH_BYTES_MAX = 1024**2
"""Bytes that a command may still add while its disk is below the reserve, so that only commands that fill it are
killed."""


class Usage(NamedTuple):
    size_bytes: int
    """Blocks on disk; a file with several names counts once."""

    files: int
    """Names: of files, folders, links and everything else."""

    is_whole: bool
    """False if a folder could not be examined: it needs too many descriptors, or is closed again each time."""


def measure_steps(folder_fd: int) -> Generator[Usage]:
    """Yield the counts so far, and last the total; the caller keeps the descriptor open."""
    size_bytes = files = 0
    is_whole = True
    linked: set[tuple[int, int]] = set()
    bases = [folder_fd]
    waiting = [(0, ".")]
    try:
        while waiting:
            base, path = waiting.pop()
            while len(bases) > base + 1:
                os.close(bases.pop())
            try:
                fd = _open_folder(bases[base], path)
            except OSError as error:
                is_whole = is_whole and error.errno in _GONE
                continue
            bases.append(fd)
            if len(path) > PATH_CHARS_MAX:
                base, path = len(bases) - 1, "."
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    files += 1
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append((base, f"{path}/{entry.name}"))
                    elif status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in linked:
                            continue
                        linked.add((status.st_dev, status.st_ino))
                    size_bytes += status.st_blocks * BLOCK_BYTES
                    if files % STEP_ENTRIES == 0:
                        yield Usage(size_bytes, files, is_whole)
    finally:
        for fd in bases[1:]:
            os.close(fd)
    yield Usage(size_bytes, files, is_whole)


def read_spare_bytes(place: int | str, reserve_bytes: int) -> int:
    """Return the free bytes of a folder's or descriptor's file system beyond the reserve; negative if below it."""
    free = os.statvfs(place)
    return free.f_bavail * free.f_frsize - reserve_bytes


def _open_folder(root_fd: int, path: str) -> int:
    """Open a folder; its owner can also open one that a command has closed to hide its content."""
    try:
        return open_beneath(root_fd, path, os.O_RDONLY | os.O_DIRECTORY, follow_links=False)
    except OSError as error:
        if error.errno != EACCES:
            raise
    handle = open_beneath(root_fd, path, os.O_PATH | os.O_DIRECTORY, follow_links=False)
    try:
        name = f"/proc/self/fd/{handle}"
        os.chmod(name, stat.S_IMODE(os.fstat(handle).st_mode) | 0o700)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


class Place(NamedTuple):
    """A folder that a command may fill up to a limit."""

    name: str
    path: str
    bytes_max: int
    files_max: int
    may_hide: bool = False
    """Whether folders that cannot be examined are tolerated."""

    used_bytes: int = 0
    """Bytes in it at the start."""

    reserve_bytes: int = 0
    """Room of its file system reserved for others."""

    def find_excess(self, used: Usage) -> str:
        """Return a description of the exceeded limit; empty if there is none."""
        if not (used.is_whole or self.may_hide):
            return f"the {self.name} has folders that cannot be measured, because they are nested too deeply"
        if used.size_bytes <= self.bytes_max and used.files <= self.files_max:
            return ""
        return (
            f"the {self.name} is over its limit: {used.size_bytes} of {self.bytes_max} bytes and {used.files} of "
            f"{self.files_max} files are used"
        )

    def allow_present(self) -> Place:
        """Return a place in which the present content may stay, so that a command can delete some of it."""
        *_, used = self.measure()
        return self._replace(
            bytes_max=max(self.bytes_max, used.size_bytes),
            files_max=max(self.files_max, used.files),
            may_hide=not used.is_whole,
            used_bytes=used.size_bytes,
        )

    def read_free(self) -> tuple[int, int]:
        """Return the free bytes and file nodes of its file system, for all users."""
        free = os.statvfs(self.path)
        return free.f_bfree * free.f_frsize, free.f_ffree

    def measure(self) -> Generator[Usage]:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield from measure_steps(fd)
        finally:
            os.close(fd)


class _WatchedPlace:
    """A place, its last measurement, and the file system's free room when that began."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._free = place.read_free()
        self._used = Usage(place.used_bytes, 0, is_whole=True)
        self._settled_bytes = place.used_bytes
        """Bytes in it when the disk last had its reserve."""

    def is_suspect(self) -> bool:
        try:
            free_bytes, free_files = self.place.read_free()
            bytes_max = self._low_bytes_max if self._is_low() else self.place.bytes_max
        except OSError:  # a disk that fails, or a workspace that was put aside
            return False
        return (
            self._free[0] - free_bytes > bytes_max - self._used.size_bytes
            or self._free[1] - free_files > self.place.files_max - self._used.files
        )

    def measure(self, unlinked: _UnlinkedFiles) -> Generator[str]:
        """Yield after each step a description of the exceeded limit, if any."""
        free = self.place.read_free()
        used, unlinked_bytes = self._used, unlinked.size_bytes.pop(os.stat(self.place.path).st_dev, 0)
        for measured in self.place.measure():
            used = measured._replace(size_bytes=measured.size_bytes + unlinked_bytes)
            excess = self.place.find_excess(used)
            if not excess and used.size_bytes > self._low_bytes_max and self._is_low():
                kept = self.place.reserve_bytes
                excess = f"the disk is almost full: the last {kept} bytes of it are for the chats themselves"
            yield excess
        self._free, self._used = free, used
        if not self._is_low():
            self._settled_bytes = used.size_bytes

    def estimate_pause_s(self) -> float:
        return min(
            (self.place.bytes_max - self._used.size_bytes) / FASTEST_BYTES_S,
            (self.place.files_max - self._used.files) / FASTEST_FILES_S,
            self._read_spare_bytes() / FASTEST_BYTES_S,
        )

    @property
    def _low_bytes_max(self) -> int:
        """Maximum bytes in it while the disk is below its reserve."""
        return self._settled_bytes + GROWTH_BYTES_MAX

    def _is_low(self) -> bool:
        return self._read_spare_bytes() < 0

    def _read_spare_bytes(self) -> float:
        """Return the disk's room beyond the reserve; infinite without a reserve or if unknown."""
        reserve_bytes = self.place.reserve_bytes
        with suppress(OSError):
            return read_spare_bytes(self.place.path, reserve_bytes) if reserve_bytes else math.inf
        return math.inf


class SpaceWatch:
    def __init__(self, places: Iterable[Place]) -> None:
        self._places = [_WatchedPlace(place) for place in places]
        self._steps = self._measure_again_and_again()
        self.due_s = 0.0 if self._places else math.inf
        """Time of the next look, by the monotonic clock."""

    def look(self) -> str:
        """Measure for a moment; return a description of the exceeded limit, empty if there is none."""
        started_s = time.process_time()
        problem, pause_s = "", 0.0
        while not problem and not pause_s and time.process_time() - started_s < SLICE_S:
            problem, pause_s = next(self._steps)
        is_suspect = any(watched.is_suspect() for watched in self._places)
        ratio = PAUSE_RATIO_SUSPECT if is_suspect else PAUSE_RATIO
        self.due_s = time.monotonic() + max(ratio * (time.process_time() - started_s), pause_s)
        return problem

    def _measure_again_and_again(self) -> Generator[tuple[str, float]]:
        """Yield after each step a description of the exceeded limit; after the last step of a round, the pause before
        the next."""
        while True:
            unlinked = _UnlinkedFiles()
            for pid in _find_descendants(os.getpid()):
                unlinked.add_open_files(pid)
                yield "", 0.0
            for watched in self._places:
                with suppress(OSError):  # a disk that fails, or runs out of something: the next round looks again
                    for problem in watched.measure(unlinked):
                        yield problem, 0.0
            pause_s = min(watched.estimate_pause_s() for watched in self._places)
            yield "", min(max(PAUSE_S_MIN, pause_s), PAUSE_S_MAX)


class _UnlinkedFiles:
    """Open files without a name, which use room that no walk sees."""

    def __init__(self) -> None:
        self.size_bytes: dict[int, int] = {}
        """Bytes by device."""
        self._counted: set[tuple[int, int]] = set()

    def add_open_files(self, pid: int) -> None:
        with suppress(OSError):  # it has ended
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    key = (status.st_dev, status.st_ino)
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and key not in self._counted:
                        self._counted.add(key)
                        more_bytes = status.st_blocks * BLOCK_BYTES
                        self.size_bytes[status.st_dev] = self.size_bytes.get(status.st_dev, 0) + more_bytes


def _find_descendants(ancestor: int) -> Generator[int]:
    waiting = [ancestor]
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):  # it has ended, and its children are ours now: the next round finds them
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    waiting += map(int, file.read().split())
        if parent != ancestor:
            yield parent
