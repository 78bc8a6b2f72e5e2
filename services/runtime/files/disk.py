"""Durable file names and disk errors."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import DiskFull, Overloaded
from services.runtime.ending import CannotServe
from services.runtime.randomness import new_uuid

UMASK = 0o077
"""New files and folders are accessible only to this process's user."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

_libc = ctypes.CDLL(None, use_errno=True)

FULL_RETRY_AFTER_S = 5.0
"""Wait that callers are asked for: an operator must free space, which is noticed within a second or two."""


@contextmanager
def disk_errors(what: str, chat_id: str) -> Generator[None]:
    """Translate an OSError to Overloaded, or to DiskFull; `what` names the action."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise make_full_error(what, chatId=chat_id) from error
        code = error.errno or 0
        raise Overloaded(
            f"the disk refused {what}: {os.strerror(code)}; try again later", chatId=chat_id, errno=code
        ) from error


def make_full_error(what: str, **metadata: str) -> DiskFull:
    message = f"the disk has no room for {what}; make some, then try again"
    return DiskFull(message, retry_after_s=FULL_RETRY_AFTER_S, **metadata)


def make_folder(folder: Path) -> None:
    """Create a folder and missing parents; their names are durable on return."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o777 & ~UMASK, exist_ok=True)
        sync_folder(folder.parent)


def make_private_folder(folder: Path, *, is_volume: bool = False) -> None:
    """Create a folder if it is missing, and close it to other users.

    The root of a volume may belong to another user, for example on Kubernetes; it is then left alone, because the
    folders in it are closed.

    Raises:
        CannotServe: Other users may use the folder, and this one cannot change that.
    """
    make_folder(folder)
    status = folder.stat()
    if not status.st_mode & UMASK or (is_volume and status.st_uid != os.geteuid()):
        return
    try:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)
        reason = "its file system keeps that" if folder.stat().st_mode & UMASK else ""
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    if reason:
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        raise CannotServe(f"{folder}: other users may use this folder (mode {mode}); chmod 700 fails: {reason}")


def write_whole(path: Path, data: bytes) -> None:
    """Create or replace a file in one step; it is durable on return."""
    unfinished = path.with_name(f".{new_uuid()}")
    try:
        with open(unfinished, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_file_system(fd: int) -> None:
    """Flush the whole file system of `fd` to disk, including other programs' writes."""
    if _libc.syncfs(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_folder(folder: Path, sync: Callable[[int], None] | None = None) -> None:
    """Make the names in the folder durable; without this a synced file may be lost."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (sync or os.fsync)(fd)
    finally:
        os.close(fd)
