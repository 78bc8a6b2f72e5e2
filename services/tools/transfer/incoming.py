"""Keeps incoming files out of commands' reach until they are whole."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.tools.sandbox.supervisor.sweep import remove_tree
from services.tools.workspace import quota
from services.tools.workspace.workspace import Workspaces

LEFT_S = 3600.0
"""Age of files that a killed service has left; no upload takes so long."""


class IncomingFile:
    def __init__(self, path: Path, fd: int, reserve_bytes: int) -> None:
        self.path = path
        self.fd = fd
        self.size_bytes = 0
        self._reserve_bytes = reserve_bytes

    def write(self, data: bytes) -> None:
        quota.check_reserve(self.fd, len(data), self._reserve_bytes)
        view = memoryview(data)
        while view:
            written = os.write(self.fd, view)
            self.size_bytes += written
            view = view[written:]

    def link_into(self, folder_fd: int, name: str) -> None:
        """Links the file durably; raises FileExistsError when the name is taken."""
        os.fsync(self.fd)
        os.link(self.path, name, dst_dir_fd=folder_fd, follow_symlinks=False)
        os.fsync(folder_fd)


@contextmanager
def create_incoming(workspaces: Workspaces) -> Generator[IncomingFile]:
    """Makes a file, whose name here is removed after the block."""
    path = workspaces.make_incoming_folder() / f"{secrets.token_hex(16)}.part"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield IncomingFile(path, fd, workspaces.reserve_bytes)
    finally:
        os.close(fd)
        os.unlink(path)


def remove_leftovers(folder: Path) -> None:
    """Removes old files only, because other services may be receiving into `folder` now."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # removed by another service, or a disk that fails: they stay until the next start
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT_S:
                    # A folder is a skill's that was being put into a workspace.
                    remove_tree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
