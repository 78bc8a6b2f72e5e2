"""Makes system calls that Python has no name for; standard library only."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def syscall(number: int, *arguments: object) -> int:
    """Makes a system call, with integers as C longs; raises OSError."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = _libc.syscall(ctypes.c_long(number), *values)
    if result < 0:
        raise _make_error()
    return result


def prctl(option: int, *arguments: int) -> None:
    """Calls prctl(2); raises OSError."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    if _libc.prctl(option, *padded) < 0:
        raise _make_error()


def _make_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
