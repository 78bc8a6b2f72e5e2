"""Reading small files that people, or other programs, put where we look."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_OF_THE_MACHINE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)
# File systems over a network, or of a process, fail so; those that keep a copy on a disk need room there to read.
_OF_FAR_DISKS = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENOSPC, errno.EDQUOT)

PASSING = frozenset((*_OF_THE_MACHINE, *_OF_FAR_DISKS))
"""Errors that say nothing of a file: it may be readable later although nobody has changed it."""

_passing_errors: ContextVar[list[OSError] | None] = ContextVar("passing_errors", default=None)


@contextmanager
def noting_passing_errors() -> Generator[list[OSError]]:
    """Collect the errors of reads inside the block, of this thread or task, that may pass by themselves."""
    errors: list[OSError] = []
    token = _passing_errors.set(errors)
    try:
        yield errors
    finally:
        _passing_errors.reset(token)


def read_regular_file(path: str | Path, bytes_max: int) -> bytes:
    """Return the content of a file; links to one are followed.

    Anything else is refused without waiting for it or reading from it: a pipe has no end before its writer comes, and
    some devices have none at all.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger than `bytes_max`; `strerror` says which.
    """
    try:
        return _read_file(path, bytes_max)
    except OSError as error:
        if error.errno in PASSING and (errors := _passing_errors.get()) is not None:
            errors.append(error)
        raise


def _read_file(path: str | Path, bytes_max: int) -> bytes:
    # Without O_NONBLOCK to open a pipe would wait for its writer; for a regular file it means nothing.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(fd, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(fd)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
    return data
