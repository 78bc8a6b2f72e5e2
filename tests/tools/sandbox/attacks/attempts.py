"""Makes every attempt in a separate process in the sandbox, and prints how each ended, one per line.

Standard input: JSON with the victims and the attempts, pairs of name and Python code. An attempt is DENIED when a
system call fails as it should or a signal ends it, LIMITED when it says so, ALLOWED when its code runs to the end;
any other error is BROKEN, so that a mistake in an attempt does not pass for a denial.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

TIMEOUT_S = 10
IMPORTS = "import fcntl, mmap, resource, signal, socket, stat, struct, threading, time\n"

REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EROFS})
"""Besides them ESRCH, and what a lone network has, are refusals where a namespace hides the other side."""
HIDDEN = frozenset({errno.ESRCH, errno.ECONNREFUSED, errno.ENETUNREACH})

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Limited(Exception):
    """The attempt had a limited effect."""


def call(number: int, *arguments: object) -> int:
    """A raw system call; raises OSError."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *values)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def refuse(why: str) -> None:
    """Report a denial for an attempt that no system call refused but that achieved nothing."""
    raise PermissionError(errno.EPERM, why)


def attempt(code: str, names: dict[str, Any]) -> str:
    try:
        exec(code, names)  # the table's code is what this program is for
    except Limited as limited:
        return f"LIMITED {limited}"
    except OSError as error:
        kind = "DENIED" if error.errno in REFUSALS else "HIDDEN" if error.errno in HIDDEN else "BROKEN"
        return f"{kind} {errno.errorcode.get(error.errno or 0)}"
    except BaseException as error:
        return f"BROKEN {type(error).__name__}: {error}"
    return "ALLOWED"


def in_child(code: str, names: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(TIMEOUT_S)
        os.write(writing, attempt(code, names).encode())
        os._exit(0)
    os.close(writing)
    output = b"".join(iter(lambda: os.read(reading, 4096), b"")).decode()
    os.close(reading)
    _, status = os.waitpid(child, 0)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return output or ("DENIED SIGSYS" if number == signal.SIGSYS else f"BROKEN signal {number}")


def main() -> None:
    given = json.load(sys.stdin)
    names = {"v": SimpleNamespace(**given["victims"]), "n": given["numbers"], "call": call, "refuse": refuse}
    names |= {"Limited": Limited, "ctypes": ctypes, "os": os}
    for name, code in given["attempts"]:
        ending = in_child(IMPORTS + code, dict(names))
        print(f"{name}\t{ending}", flush=True)  # noqa: T201 - printing is how a command answers


main()
