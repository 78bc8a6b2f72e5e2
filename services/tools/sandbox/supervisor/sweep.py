"""Removes processes and files that a command leaves; standard library only."""

from __future__ import annotations

import os
import signal
import time

SWEEP_S = 10.0
"""Maximum time of a sweep; only a process stuck in the kernel outlasts it."""


def reap_children(child: int) -> int | None:
    """Return the status of `child` if it was reaped."""
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
    """Kill children until none is left; each hands its own children over to us."""
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
    """Remove a folder of any depth, including read-only content; follows no link. Raises OSError."""
    fd = _open_writable(folder)
    try:
        while names := os.listdir(fd):
            for name in names:
                _remove_entry(fd, name)
    finally:
        os.close(fd)
    os.rmdir(folder)


def _remove_entry(top_fd: int, name: str) -> None:
    # Folders in a folder are moved to the top first: neither our stack nor a path may be as deep as a command builds.
    try:
        os.unlink(name, dir_fd=top_fd)
        return
    except IsADirectoryError:
        fd = _open_writable(name, top_fd)
    try:
        for inner in os.listdir(fd):
            try:
                os.unlink(inner, dir_fd=fd)
            except IsADirectoryError:
                os.close(_open_writable(inner, fd))  # moving a folder requires writing to it
                os.rename(inner, f".{os.urandom(16).hex()}", src_dir_fd=fd, dst_dir_fd=top_fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top_fd)


def _open_writable(name: str, parent_fd: int | None = None) -> int:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        path = f"/proc/self/fd/{handle}"
        os.chmod(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
