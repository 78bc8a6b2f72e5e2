"""Makes a process give up permanently every file it was not granted, TCP, and signals to others.

https://docs.kernel.org/userspace-api/landlock.html. Landlock does not restrict stat, chdir, chmod, extended attributes
and other sockets; seccomp.py does, but a command can tell that a path exists.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from services.tools.sandbox.supervisor import kernel

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System call numbers are the same on every architecture."""

ABI_MIN = 1
"""Linux 5.13, in which files cannot be moved or linked to another folder."""

TRUNCATION = 3
"""ABI of Linux 6.2. Before it, a process that may read a file may truncate it; seccomp.py then refuses that."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
MAKE_FIFO, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15

FILES_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1}
"""The rights that an ABI restricts; later ones restrict all below."""

FILES_ALL_LATER = (1 << 15) - 1

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE

OF_ONE_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule about something other than a folder may carry."""

BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
ABSTRACT_UNIX_SOCKET, SIGNAL = 1 << 0, 1 << 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Port(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


class _BelowPath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the meaning of _pack_, which Python 3.14 requires to be stated
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def read_abi() -> int:
    """Return the kernel's Landlock version; 0 without Landlock."""
    try:
        return kernel.syscall(CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def restrict_process(
    readable: Iterable[str], writable: Iterable[str], devices: Iterable[str], port: int | None, version: int
) -> None:
    """Confine this process and its children; needs no_new_privs. Missing paths are skipped.

    TCP may connect only to `port`. Nothing beyond ABI `version` is restricted.
    """
    files = FILES_ALL.get(version, FILES_ALL_LATER | (IOCTL_DEV if version >= 5 else 0))
    ruleset = _Ruleset(
        files,
        BIND_TCP | CONNECT_TCP if version >= 4 else 0,
        ABSTRACT_UNIX_SOCKET | SIGNAL if version >= 6 else 0,
    )
    # A kernel refuses a structure that is longer than the one it knows if the rest is not zero; ours is then zero.
    fd = kernel.syscall(CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    for rights, paths in ((READ, readable), (WRITE, writable), (READ_FILE | WRITE_FILE, devices)):
        for path in paths:
            _grant_path(fd, path, rights & files)
    if port is not None and version >= 4:
        kernel.syscall(ADD_RULE, fd, 2, ctypes.byref(_Port(CONNECT_TCP, port)), 0)
    kernel.syscall(RESTRICT_SELF, fd, 0)
    os.close(fd)


def _grant_path(ruleset_fd: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= OF_ONE_FILE
    rule = _BelowPath(rights, fd)
    kernel.syscall(ADD_RULE, ruleset_fd, 1, ctypes.byref(rule), 0)
    os.close(fd)
