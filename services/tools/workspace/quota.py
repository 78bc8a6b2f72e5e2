"""What a workspace may hold, checked before a file is added. A command writes by itself: the next file after it finds
the workspace full."""

from __future__ import annotations

from dataclasses import dataclass
from errno import EDQUOT

from services.tools.workspace.tree_walk import walk

BYTES_MAX = 1024**3
"""A gibibyte, unless configured otherwise."""

FILES_MAX = 20_000
"""Walking them takes 0.1 s, which each write pays."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is in a workspace."""

    size_bytes: int
    files: int


class WorkspaceFull(OSError):
    """The workspace has no room; the text says how much there is and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(EDQUOT, text)
        self.text = text


def usage(folder_fd: int) -> Usage:
    """What an open workspace folder holds, by what it takes on the disk."""
    size_bytes = files = 0
    for found in walk(folder_fd):
        size_bytes += found.status.st_blocks * 512
        files += 1
    return Usage(size_bytes, files)


def room_bytes(folder_fd: int, bytes_max: int) -> int:
    """How much more may be put into the workspace; 0 when it holds too many files as well."""
    used = usage(folder_fd)
    return max(0, bytes_max - used.size_bytes) if used.files < FILES_MAX else 0


def check_room(folder_fd: int, more_bytes: int, bytes_max: int) -> None:
    """Raise WorkspaceFull unless a new file of that size has room."""
    used = usage(folder_fd)
    if used.size_bytes + more_bytes > bytes_max:
        raise WorkspaceFull(
            f"the workspace is full: {used.size_bytes} of {bytes_max} bytes are used and {more_bytes} more are needed; "
            "delete files"
        )
    if used.files >= FILES_MAX:
        raise WorkspaceFull(f"the workspace is full: it holds {used.files} files of {FILES_MAX}; delete files")
