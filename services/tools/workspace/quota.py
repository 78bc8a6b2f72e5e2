"""Checks a workspace's size before a file is added; a command's supervisor watches it (sandbox/supervisor)."""

from __future__ import annotations

import os
from errno import EDQUOT, ENOSPC

from services.tools.sandbox.supervisor.space_watch import Usage, measure_steps, read_spare_bytes

BYTES_MAX = 1024**3

RESERVE_BYTES = 512 * 1024**2

FILES_MAX = 20_000
"""Maximum files, folders and links of a workspace; each write walks them, in 0.1 s."""


class WorkspaceFull(OSError):
    """The workspace has no room; the text states its limit and suggests what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(EDQUOT, text)
        self.text = text


def measure_usage(folder_fd: int, bytes_max: int) -> Usage:
    """Measure an open folder, stopping once it exceeds its limit."""
    used = Usage(0, 0, is_whole=True)
    for used in measure_steps(folder_fd):
        if used.size_bytes > bytes_max or used.files > FILES_MAX:
            break
    return used


def room_bytes(used: Usage, bytes_max: int) -> int:
    return max(0, bytes_max - used.size_bytes) if used.files < FILES_MAX and used.is_whole else 0


def check_reserve(fd: int, more_bytes: int, reserve_bytes: int) -> None:
    """Raise the error of a full disk if the bytes would use some of the reserve on the file system of `fd`."""
    if reserve_bytes and read_spare_bytes(fd, reserve_bytes) < more_bytes:
        raise OSError(ENOSPC, os.strerror(ENOSPC))


def check_room(folder_fd: int, more_bytes: int, bytes_max: int) -> None:
    used = measure_usage(folder_fd, bytes_max)
    if used.size_bytes + more_bytes > bytes_max:
        raise WorkspaceFull(
            f"the workspace is full: {used.size_bytes} of {bytes_max} bytes are used and {more_bytes} more are needed; "
            "delete files"
        )
    if used.files >= FILES_MAX:
        raise WorkspaceFull(f"the workspace is full: it holds {used.files} files of {FILES_MAX}; delete files")
    if not used.is_whole:
        raise WorkspaceFull("the workspace cannot be measured: its folders are nested too deeply; delete some")
