"""Walking a folder in the order of paths, bounded, while somebody else may be changing it.

Every folder is opened beneath the start's descriptor and never through a link, so a folder that is swapped for a link
in the middle is left out, not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from dataclasses import dataclass
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV
from itertools import islice

from services.tools.workspace.openat2 import open_beneath

ENTRIES_MAX = 50_000
"""Names looked at in one walk: 0.3 s. A workspace holds fewer files (quota.py); a command may still make more."""

DEPTH_MAX = 64
"""Deeper folders are left out: nobody keeps files there."""

_SKIPPED = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, ENAMETOOLONG})
"""What opening a folder fails with that was removed, swapped or closed since its name was read, or lies too deep."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file, a link or anything else that is no folder."""

    path: str
    """Relative to the folder walked."""

    status: os.stat_result
    """Of the link itself where it is one."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def walk(folder_fd: int, *, depth_max: int = DEPTH_MAX) -> Generator[Found]:
    """What is below an open folder, ordered by path; ends early after ENTRIES_MAX. Close it to stop early.

    `depth_max` 1 means the folder's own files.
    """
    room = ENTRIES_MAX
    # Folders and files to come, the next one last; a folder's path ends with a slash, which also sorts it right.
    waiting: list[Found | str] = ["./"]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Found):
            yield item
        elif room > 0:
            entries = _entries(folder_fd, item, room)
            room -= len(entries)
            waiting += sorted(
                (entry for entry in entries if isinstance(entry, Found) or entry.count("/") <= depth_max),
                key=lambda entry: entry if isinstance(entry, str) else f"./{entry.path}",
                reverse=True,
            )


def _entries(folder_fd: int, path: str, entries_max: int) -> list[Found | str]:
    """What lies in one folder: files, and the paths of folders with a final slash."""
    try:
        fd = open_beneath(folder_fd, path, os.O_RDONLY | os.O_DIRECTORY, follow_links=False)
    except OSError as error:
        if error.errno in _SKIPPED and path != "./":
            return []
        raise
    try:
        with os.scandir(fd) as entries:
            return [found for entry in islice(entries, entries_max) if (found := _found(path, entry)) is not None]
    finally:
        os.close(fd)


def _found(folder: str, entry: os.DirEntry[str]) -> Found | str | None:
    path = folder + entry.name
    try:
        if entry.is_dir(follow_symlinks=False):
            return path + "/"
        return Found(path.removeprefix("./"), entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None
