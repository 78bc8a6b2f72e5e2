"""Walks a folder in the order of paths, bounded, while somebody else may be changing it.

Folders are opened beneath the start's descriptor and never through a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from dataclasses import dataclass
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV
from itertools import islice

from services.tools.sandbox.confinement.openat2 import open_beneath

ENTRIES_MAX = 50_000
"""Names that one walk looks at, in 0.3 s; a command may make more than quota.py allows."""

DEPTH_MAX = 64

_SKIPPED = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, ENAMETOOLONG})
"""Errors of a folder that was removed, swapped or closed since its name was read, or lies too deep."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    path: str

    status: os.stat_result
    """A link's own status, not its target's."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def walk_tree(folder_fd: int, *, depth_max: int = DEPTH_MAX) -> Generator[TreeEntry]:
    """Yields entries by path, up to ENTRIES_MAX; close it to stop early. `depth_max` 1 means the folder's own files."""
    room = ENTRIES_MAX
    # Folders and files to come, the next one last; a folder's path ends with a slash, which also sorts it right.
    waiting: list[TreeEntry | str] = ["./"]
    while waiting:
        item = waiting.pop()
        if isinstance(item, TreeEntry):
            yield item
        elif room > 0:
            entries = _read_entries(folder_fd, item, room)
            room -= len(entries)
            waiting += sorted(
                (entry for entry in entries if isinstance(entry, TreeEntry) or entry.count("/") <= depth_max),
                key=lambda entry: entry if isinstance(entry, str) else f"./{entry.path}",
                reverse=True,
            )


def _read_entries(folder_fd: int, path: str, entries_max: int) -> list[TreeEntry | str]:
    try:
        fd = open_beneath(folder_fd, path, os.O_RDONLY | os.O_DIRECTORY, follow_links=False)
    except OSError as error:
        if error.errno in _SKIPPED and path != "./":
            return []
        raise
    try:
        with os.scandir(fd) as entries:
            return [
                tree_entry
                for entry in islice(entries, entries_max)
                if (tree_entry := _make_entry(path, entry)) is not None
            ]
    finally:
        os.close(fd)


def _make_entry(folder: str, entry: os.DirEntry[str]) -> TreeEntry | str | None:
    path = folder + entry.name
    try:
        if entry.is_dir(follow_symlinks=False):
            return path + "/"
        return TreeEntry(path.removeprefix("./"), entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None
