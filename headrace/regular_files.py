"""Reads small files from places where users or other programs put them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_OF_THE_MACHINE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)
# Errors of network and FUSE file systems; those that cache files on disk need space there to read.
_OF_FAR_DISKS = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENOSPC, errno.EDQUOT)

PASSING = frozenset((*_OF_THE_MACHINE, *_OF_FAR_DISKS))
"""Errors that are not caused by the file, which may become readable without being changed."""

_passing_errors: ContextVar[list[OSError] | None] = ContextVar("passing_errors", default=None)


@contextmanager
def noting_passing_errors() -> Generator[list[OSError]]:
    """Collect the read errors inside the block, in this thread or task, that may disappear without a change."""
    errors: list[OSError] = []
    token = _passing_errors.set(errors)
    try:
        yield errors
    finally:
        _passing_errors.reset(token)


def read_regular_file(path: str | Path, bytes_max: int) -> bytes:
    """Return the content of a regular file, following links.

    Anything else is refused without waiting for it or reading from it: a pipe does not end before its writer
    comes, and some devices never end.

    Raises:
        OSError: The file cannot be read, is not regular, or is larger than `bytes_max`; `strerror` says which.
    """
    try:
        return _read_file(path, bytes_max)
    except OSError as error:
        if error.errno in PASSING and (errors := _passing_errors.get()) is not None:
            errors.append(error)
        raise


def read_regular_text(path: str | Path, bytes_max: int) -> str:
    """Like `read_regular_file`, for UTF-8 text, without the byte order mark of some editors.

    Raises:
        OSError: As there.
        UnicodeDecodeError: It is not UTF-8.
    """
    return read_regular_file(path, bytes_max).decode("utf-8-sig")


def _read_file(path: str | Path, bytes_max: int) -> bytes:
    # Without O_NONBLOCK, opening a pipe would wait for its writer; it has no effect on a regular file.
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
