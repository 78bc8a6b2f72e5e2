"""Answers the seccomp filter's notifications (seccomp_unotify(2)).

A call may continue only if registers hold everything that decides, as with fork and clone, because the command's memory
could change after our check. Landlock restricts neither modes nor times of files: we open the path ourselves and change
the open file, if the command may write there, so there is no race. The kernel's own process limit counts all of the
user's and exempts root, so the filter asks before each new one. During the final sweep nothing is answered, so a fork
bomb is frozen.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from errno import EAGAIN, ENOENT, EPERM
from fcntl import ioctl

from services.tools.sandbox.supervisor import kernel
from services.tools.sandbox.supervisor.syscalls import ASKED, UTIMENSAT

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

NOTICE = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, call, architecture, instruction, arguments."""

REPLY = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, negative error, flags."""

CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE: the kernel carries out the call."""

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

REFUSED_S = 0.05
"""How long requests are refused uncounted after a refusal, because a fork bomb asks endlessly."""


def answer_notification(listener: int, writable: tuple[str, ...], population: Population) -> None:
    question = bytearray(NOTICE.size)
    with suppress(OSError):  # the asking process was killed in the meantime
        ioctl(listener, RECEIVE, question)
        number, pid, _, call, _, _, *arguments = NOTICE.unpack(question)
        if call in CALLS:
            reply = REPLY.pack(number, 0, -change_attributes(pid, call, arguments, writable), 0)
        elif population.may_grow():
            reply = REPLY.pack(number, 0, 0, CONTINUE)
        else:
            reply = REPLY.pack(number, 0, -EAGAIN, 0)
        ioctl(listener, SEND, reply)


def change_attributes(pid: int, call: int, arguments: list[int], writable: tuple[str, ...]) -> int:
    """Change a file's attributes as the call requests; return the error number, 0 on success."""
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


class Population:
    """Processes of a command; only processes that end between two counts can let it exceed `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = 0
        """Processes alive at the last count, plus all allowed since."""
        self._refused_until_s = 0.0

    def may_grow(self) -> bool:
        """Return whether one more process may start, and count it."""
        if self._most >= self._limit:
            if time.monotonic() < self._refused_until_s:
                return False
            self._most = count_descendants(os.getpid())
            if self._most >= self._limit:
                self._refused_until_s = time.monotonic() + REFUSED_S
                return False
        self._most += 1
        return True


def count_descendants(ancestor: int) -> int:
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            pid = int(name)
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[pid], threads[pid] = int(fields[1]), int(fields[17])
    return sum(count for pid, count in threads.items() if _is_below(pid, ancestor, parents))


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    # Ids reused while we read may form a ring of parents, so the way is bounded by their number.
    for _ in parents:
        pid = parents.get(pid, 0)
        if pid in (0, ancestor):
            break
    return pid == ancestor
