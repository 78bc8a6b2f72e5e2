"""Removes what a command leaves behind; standard library only."""

from __future__ import annotations

import os
import signal
import time

SWEEP_S = 10.0
"""Time of a sweep, which only a process stuck in the kernel outlasts."""


def reap_children(child: int) -> int | None:
    """Returns the status of `child` if it was reaped."""
    child_status = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return child_status
        if pid == 0:
            return child_status
        if pid == child:
            child_status = os.waitstatus_to_exitcode(status)


def kill_children() -> None:
    """Kills children until there are none: each hands its own children over to us."""
    deadline = time.monotonic() + SWEEP_S
    own = os.getpid()
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        for name in os.listdir("/proc"):
            if name.isdecimal() and read_parent(int(name)) == own:
                os.kill(int(name), signal.SIGKILL)  # ours until we collect it: the id cannot be another's
        time.sleep(0.001)


def read_parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def remove_tree(folder: str) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # the walk goes on into it after this
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(f"{path}/{name}")
        for name in folders:
            inner = f"{path}/{name}"
            os.unlink(inner) if os.path.islink(inner) else os.rmdir(inner)
    os.rmdir(folder)
