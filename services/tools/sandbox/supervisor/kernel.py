"""Makes system calls that Python does not wrap, and opens files so that no path leads out of a folder.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os
from errno import ENOSYS

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4

OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08


def syscall(number: int, *arguments: object) -> int:
    """Make a system call, with integers as C longs. Raises OSError."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = _libc.syscall(ctypes.c_long(number), *values)
    if result < 0:
        raise _make_error()
    return result


def prctl(option: int, *arguments: int) -> None:
    """Call prctl(2). Raises OSError."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    if _libc.prctl(option, *padded) < 0:
        raise _make_error()


def _make_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder_fd: int, path: str, flags: int, *, follow_links: bool = True) -> int:
    """Open a path below a folder; the caller closes the descriptor.

    Raises OSError: EXDEV if the path leads outside, ELOOP at a link that must not be followed, ENOSYS before Linux 5.6;
    ValueError for a null character, at which the kernel would stop reading.
    """
    if "\0" in path:
        raise ValueError("embedded null character")
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if follow_links else RESOLVE_NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    try:
        while True:
            try:
                return syscall(OPENAT2, folder_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            except InterruptedError:  # Python retries automatically only in its own functions (PEP 475)
                continue
    except OSError as error:
        if error.errno == ENOSYS:
            raise OSError(
                ENOSYS, "files of a workspace need openat2 (Linux 5.6, and a sandbox that allows it)"
            ) from error
        raise
