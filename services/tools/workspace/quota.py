"""Checks a workspace's size before a file is added; commands write unchecked."""

from __future__ import annotations

from dataclasses import dataclass
from errno import EDQUOT

from services.tools.workspace.tree_walk import walk_tree

BYTES_MAX = 1024**3

FILES_MAX = 20_000
"""Files of a workspace; each write walks them, in 0.1 s."""


@dataclass(frozen=True, slots=True)
class Usage:
    size_bytes: int
    files: int


class WorkspaceFull(OSError):
    """The workspace has no room; the text says how much there is and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(EDQUOT, text)
        self.text = text


def measure_usage(folder_fd: int) -> Usage:
    """Measures the disk use of an open folder."""
    size_bytes = files = 0
    for entry in walk_tree(folder_fd):
        size_bytes += entry.status.st_blocks * 512
        files += 1
    return Usage(size_bytes, files)


def room_bytes(folder_fd: int, bytes_max: int) -> int:
    """Returns the room left, 0 also when the workspace holds too many files."""
    used = measure_usage(folder_fd)
    return max(0, bytes_max - used.size_bytes) if used.files < FILES_MAX else 0


def check_room(folder_fd: int, more_bytes: int, bytes_max: int) -> None:
    used = measure_usage(folder_fd)
    if used.size_bytes + more_bytes > bytes_max:
        raise WorkspaceFull(
            f"the workspace is full: {used.size_bytes} of {bytes_max} bytes are used and {more_bytes} more are needed; "
            "delete files"
        )
    if used.files >= FILES_MAX:
        raise WorkspaceFull(f"the workspace is full: it holds {used.files} files of {FILES_MAX}; delete files")
