"""Measures what a folder takes of the disk, step by step, while a command may be changing it; standard library only."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EXDEV
from typing import NamedTuple

from services.tools.sandbox.confinement.openat2 import open_beneath

STEP_ENTRIES = 200
"""Entries of a step, which takes about a millisecond."""

BLOCK_BYTES = 512

PATH_CHARS_MAX = 900
"""Length from which paths begin anew at a folder that stays open: the kernel takes 4,095 bytes."""

_GONE = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV})
"""Errors of a folder that was removed or swapped since its name was read."""


class Usage(NamedTuple):
    size_bytes: int
    """Blocks on disk; a file with several names counts once."""

    files: int
    """Names: of files, folders, links and everything else."""

    is_whole: bool
    """False where a folder could not be looked into: it takes too many descriptors, or is closed again each time."""


def measure_steps(folder_fd: int) -> Generator[Usage]:
    """Yields what has been counted so far, and last the whole; the caller keeps the descriptor open."""
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
    """Returns what the file system of a folder or descriptor has beyond the reserve; negative where that is touched."""
    free = os.statvfs(place)
    return free.f_bavail * free.f_frsize - reserve_bytes


def _open_folder(root_fd: int, path: str) -> int:
    """Opens a folder, and for its owner one that a command has closed to hide what is in it."""
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
