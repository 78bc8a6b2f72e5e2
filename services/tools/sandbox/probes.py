"""Tries everything that must be denied, and prints whatever was not."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable

PTRACE_ATTACH = 16


def must_fail(name: str, attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except OSError:
        return
    print(name)  # noqa: T201 - printing is how a command answers


def raise_negative(result: int) -> None:
    if result < 0:
        raise OSError


def main() -> None:
    secret, service_pid, namespaces = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    libc = ctypes.CDLL(None)
    must_fail("reads a file outside", lambda: open(secret).close())
    must_fail("writes a file outside", lambda: open(secret, "a").close())
    must_fail("changes the mode of a file outside", lambda: os.chmod(secret, 0o600))
    must_fail("reads another process's environment", lambda: open(f"/proc/{service_pid}/environ").close())
    if service_pid != os.getpid():  # numbers of another namespace begin again
        must_fail("signals the service", lambda: os.kill(service_pid, 0))
    must_fail("opens a TCP socket", lambda: socket.socket(socket.AF_INET).close())
    must_fail("opens a Unix socket", lambda: socket.socket(socket.AF_UNIX).close())
    must_fail("makes a namespace", lambda: raise_negative(libc.unshare(0x10000000)))
    must_fail("traces another process", lambda: raise_negative(libc.ptrace(PTRACE_ATTACH, service_pid, None, None)))
    for namespace in namespaces:
        if os.readlink(f"/proc/self/ns/{namespace.partition(':')[0]}") == namespace:
            print(f"shares {namespace}")  # noqa: T201
    with open("written", "w") as file:
        file.write("the workspace can be written")
    print("done")  # noqa: T201


main()
