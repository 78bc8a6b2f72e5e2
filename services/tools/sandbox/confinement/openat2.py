"""Opens files so that no path leads out of a folder, whatever links and `..` it goes through.

openat2(2) with RESOLVE_BENEATH resolves and checks in one step.
"""

from __future__ import annotations

import ctypes
import os
from errno import ENOSYS

from services.tools.sandbox.confinement import kernel

OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder_fd: int, path: str, flags: int, *, follow_links: bool = True) -> int:
    """Opens a path below a folder; the caller closes the descriptor. Raises OSError: EXDEV when the path leads outside,
    ELOOP at a link that is not to be followed, ENOSYS before Linux 5.6; ValueError for a null character, at which the
    kernel would stop reading."""
    if "\0" in path:
        raise ValueError("embedded null character")
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if follow_links else RESOLVE_NO_SYMLINKS)
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    try:
        while True:
            try:
                return kernel.syscall(OPENAT2, folder_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            except InterruptedError:  # Python asks again by itself in its own functions alone (PEP 475)
                continue
    except OSError as error:
        if error.errno == ENOSYS:
            raise OSError(
                ENOSYS, "files of a workspace need openat2 (Linux 5.6, and a sandbox that allows it)"
            ) from error
        raise
