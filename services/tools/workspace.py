"""The workspace of a chat: a folder that its tools share, and that nothing they say leads out of.

File tools open paths relative to the folder's handle (openat2.py) and never by a name they checked before.
These functions block: call them in a thread. They raise OSError; ValueError for a name that is no file name.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import InvalidRequest
from services.runtime.rules import is_uuid
from services.tools.openat2 import open_beneath

FOLDERS = ("uploads", "outputs")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a workspace."""

    path: str
    size_bytes: int


class Workspaces:
    """All workspaces below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def open(self, chat_id: str) -> Workspace:
        """The chat's workspace, made when it does not exist yet."""
        if not is_uuid(chat_id):
            raise InvalidRequest.of("chatId", "must be a UUID in lower case")
        folder = self._root / chat_id
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        return Workspace(folder)


class Workspace:
    """One chat's workspace. Paths are relative to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def reading(self, path: str) -> Generator[int]:
        """A descriptor to read a file, open inside the block. A pipe in its place opens at once, and reads as empty."""
        with self._handle() as folder_fd:
            fd = open_beneath(folder_fd, path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        """Put `data` at `path`, whole or not at all; folders on the way are made."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", "..") or path.endswith("/"):
            raise ValueError("must end with a file name")
        if path.startswith("/"):
            raise ValueError("must be relative to the workspace")
        with self._handle() as root_fd:
            folder_fd = _make_folders(root_fd, folder)
        try:
            _replace(folder_fd, name, data)
        finally:
            os.close(folder_fd)

    def files(self, path: str, files_max: int) -> list[File]:
        """Files below a folder, ordered by path, links not followed; one more than `files_max` when there are more."""
        found: list[File] = []
        with self._handle() as root_fd:
            folder_fd = open_beneath(root_fd, path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder, folders, names, fd in os.fwalk(".", dir_fd=folder_fd):
                folders.sort()
                for name in sorted(names):
                    size_bytes = os.stat(name, dir_fd=fd, follow_symlinks=False).st_size
                    found.append(File(os.path.normpath(f"{path or '.'}/{folder}/{name}"), size_bytes))
                    if len(found) > files_max:
                        return found
        finally:
            os.close(folder_fd)
        return sorted(found, key=lambda file: file.path)

    @contextmanager
    def _handle(self) -> Generator[int]:
        fd = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)


def _make_folders(root_fd: int, path: str) -> int:
    """A descriptor of the folder, made step by step: each step is opened beneath the root and extended by one name."""
    fd = open_beneath(root_fd, ".", os.O_PATH | os.O_DIRECTORY)
    done = "."
    for part in path.split("/"):
        if part in ("", "."):
            continue
        try:
            if part != "..":
                os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass
        finally:
            os.close(fd)
        done = f"{done}/{part}"
        fd = open_beneath(root_fd, done, os.O_PATH | os.O_DIRECTORY)
    return fd


def _replace(folder_fd: int, name: str, data: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder_fd)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except OSError:
        os.unlink(temporary, dir_fd=folder_fd)
        raise
