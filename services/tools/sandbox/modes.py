"""chmod for a confined command, done by its supervisor.

Landlock does not restrict modes: `chmod -R 000 /` would work on all that the service's user owns. The filter
therefore stops these calls and asks us (seccomp_unotify(2)); we open the path ourselves and change the mode of what
we hold, if that lies in a folder that the command may write. Nothing is looked at twice, so there is nothing to race.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from errno import ENOENT, EPERM
from fcntl import ioctl

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

NOTICE = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, call, architecture, instruction, arguments."""

REPLY = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, negative error, flags."""

PATH_BYTES_MAX = 4096
PAGE_BYTES = 4096

AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
MODE_MASK = 0o1777
"""Without set-user-id and set-group-id."""

CHMOD, FCHMODAT2 = 90, 452
"""On x86_64 (aarch64 has no chmod); the third call that asks us is fchmodat."""


def answer(listener: int, writable: tuple[str, ...]) -> None:
    """Take one question from the filter and answer it."""
    question = bytearray(NOTICE.size)
    with suppress(OSError):  # the asking process was killed meanwhile
        ioctl(listener, RECEIVE, question)
        number, pid, _, call, _, _, *arguments = NOTICE.unpack(question)
        ioctl(listener, SEND, REPLY.pack(number, 0, -_change(pid, call, arguments, writable), 0))


def _change(pid: int, call: int, arguments: list[int], writable: tuple[str, ...]) -> int:
    """The error number of the call; 0: done."""
    if call == CHMOD and os.uname().machine == "x86_64":
        arguments = [AT_FDCWD, *arguments]
    folder, address, mode, flags = arguments[:4]
    follows = not (call == FCHMODAT2 and flags & AT_SYMLINK_NOFOLLOW)
    try:
        path = _string(pid, address)
        if not path:
            return ENOENT
        fd = _open(pid, folder, path, follows)
        try:
            name = f"/proc/self/fd/{fd}"
            if not _is_below(os.readlink(name), writable):
                return EPERM
            os.chmod(name, mode & MODE_MASK)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno or EPERM
    return 0


def _open(pid: int, folder: int, path: bytes, follows: bool) -> int:
    """A handle of what `path` means to process `pid`."""
    folder = struct.unpack("=i", struct.pack("=I", folder & 0xFFFFFFFF))[0]
    base = f"/proc/{pid}/cwd/" if folder == AT_FDCWD else f"/proc/{pid}/fd/{folder}/"
    where = path if path.startswith(b"/") else base.encode() + path
    return os.open(where, os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))


def _string(pid: int, address: int) -> bytes:
    """The path at an address of the process. Read page by page: the next page may not exist."""
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found and len(found) < PATH_BYTES_MAX:
            at = address + len(found)
            found += os.pread(memory.fileno(), PAGE_BYTES - at % PAGE_BYTES, at)
    return found.partition(b"\0")[0]


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)
