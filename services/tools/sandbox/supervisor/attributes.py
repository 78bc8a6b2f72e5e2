"""Changes modes and times of files in a confined command's place.

Landlock restricts neither, so the filter asks us (seccomp_notify.py). We open the path ourselves and change what we
hold, if the command may write there; nothing is looked at twice, so nothing can be raced.
"""

from __future__ import annotations

import os
import struct
from errno import ENOENT, EPERM

from services.tools.sandbox.confinement import kernel
from services.tools.sandbox.confinement.syscalls import ASKED, UTIMENSAT

PATH_BYTES_MAX = 4096
PAGE_BYTES = 4096
TIMES_BYTES = 32
"""Size of two struct timespec: last access, last change."""

AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
MODE_MASK = 0o1777
"""Mode bits without set-user-id and set-group-id."""

CHMOD, FCHMODAT, FCHMODAT2 = ASKED["chmod"], ASKED["fchmodat"], ASKED["fchmodat2"]
CALLS = frozenset(
    number for numbers in (CHMOD, FCHMODAT, FCHMODAT2, UTIMENSAT) for number in numbers if number is not None
)


def change_attributes(pid: int, call: int, arguments: list[int], writable: tuple[str, ...]) -> int:
    """Changes a file as the call asks; returns the error number, 0 on success."""
    if call == CHMOD[0]:  # no other call that asks us has its number, on any machine
        arguments = [AT_FDCWD, *arguments]
    folder, address, value, flags = arguments[:4]
    follows = call in (*CHMOD, *FCHMODAT) or not flags & AT_SYMLINK_NOFOLLOW
    try:
        path = _read_memory(pid, address, PATH_BYTES_MAX, stop=b"\0").partition(b"\0")[0]
        if not path:
            return ENOENT
        # A descriptor is a signed int, which the register holds as unsigned.
        folder = struct.unpack("=i", struct.pack("=I", folder & 0xFFFFFFFF))[0]
        base = f"/proc/{pid}/cwd/" if folder == AT_FDCWD else f"/proc/{pid}/fd/{folder}/"
        where = path if path.startswith(b"/") else base.encode() + path
        fd = os.open(where, os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))
        try:
            name = f"/proc/self/fd/{fd}"
            target = os.readlink(name)
            if not any(target == allowed or target.startswith(allowed + "/") for allowed in writable):
                return EPERM
            if call in UTIMENSAT:
                times = _read_memory(pid, value, TIMES_BYTES)[:TIMES_BYTES] if value else None
                kernel.syscall(call, AT_FDCWD, name.encode(), times, 0)
            else:
                os.chmod(name, value & MODE_MASK)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno or EPERM
    return 0


def _read_memory(pid: int, address: int, size_bytes: int, stop: bytes | None = None) -> bytes:
    # The next page may not exist, so this goes page by page up to `stop`.
    data = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while len(data) < size_bytes and (stop is None or stop not in data):
            at = address + len(data)
            data += os.pread(memory.fileno(), PAGE_BYTES - at % PAGE_BYTES, at)
    return data
