"""The supervisor: a process of its own between the service and one command.

It keeps the time, and it kills: when the command has ended, when its time is over, or when the service closes
their link, by leaving or by dying, nothing that the command started is left. As the subreaper it inherits every
daemon below it, whatever session that is in. Standard library only, and little of it: it starts for every command.

Standard input: the policy. Standard output and error: the command's. First argument: the link, a socket.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from services.tools.sandbox import kernel
from services.tools.sandbox.become import become
from services.tools.sandbox.modes import answer
from services.tools.sandbox.policy import Policy, from_json

GRACE_S = 2.0
"""Between TERM and KILL when the time is over."""

SWEEP_S = 10.0
"""How long survivors are killed again and again; only a process stuck in the kernel outlasts it."""

Ending = dict[str, Any]
"""reason (exited, timeout, failed, abandoned), and status (negative: a signal) or error."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """What the supervisor waits for, as descriptors, and the process it waits for."""

    child: int
    link: int
    wakeups: int
    listener: int | None
    """What the filter asks (modes.py); None without a filter."""

    writable: tuple[str, ...]


def main() -> None:
    link = int(sys.argv[1])
    os.set_inheritable(link, False)
    with open(0, encoding="utf-8", closefd=False) as given:
        policy = from_json(given.read())
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    wakeups = _notice_children()
    home = f"{policy.home_parent}/headrace-{os.getpid()}-{os.urandom(4).hex()}"
    os.mkdir(home, 0o700)
    try:
        ending = _supervise(policy, home, link, wakeups)
    finally:
        _sweep()
    with suppress(OSError):  # the service may have left
        os.write(link, json.dumps(ending).encode())
    with suppress(OSError, RecursionError):  # a tree too deep for us stays for whoever empties the temporary folder
        _remove(home)


def _supervise(policy: Policy, home: str, link: int, wakeups: int) -> Ending:
    failure, told = os.pipe()
    questions, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _become(policy, home, told, theirs)
    os.close(told)
    theirs.close()
    # Only the command holds the pipes of its output now: their end is its end.
    nowhere = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    _, listeners, _, _ = socket.recv_fds(questions, 1, 1)
    writable = tuple(os.path.realpath(path) for path in (policy.folder, home, *policy.writable))
    watched = _Watched(child, link, wakeups, listeners[0] if listeners else None, writable)
    ending = _wait(watched, policy.timeout_s)
    error = os.read(failure, 4096)
    return {"reason": "failed", "error": error.decode(errors="replace")} if error else ending


def _become(policy: Policy, home: str, told: int, questions: socket.socket) -> NoReturn:
    try:
        become(policy, home, (os.getppid(), _service_pid()), questions)
    except BaseException as error:  # whatever it is, a second supervisor must not come back from here
        os.write(told, f"{type(error).__name__}: {error}"[:4000].encode(errors="replace"))
    os._exit(127)


def _service_pid() -> int:
    """The parent of our parent."""
    return _parent(os.getppid())


def _wait(watched: _Watched, timeout_s: float) -> Ending:
    """Until the command ends, its time is over, or the link says something, which can only be that it has ended."""
    poll = select.poll()
    for fd in (watched.link, watched.wakeups, watched.listener):
        if fd is not None:
            poll.register(fd, select.POLLIN)
    deadline, reason = time.monotonic() + timeout_s, "exited"
    while True:
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if watched.link in ready:
            return {"reason": "abandoned"}
        if watched.listener in ready and not _answered(watched, ready[watched.listener]):
            poll.unregister(watched.listener)
        if watched.wakeups in ready:
            os.read(watched.wakeups, 4096)
            status = _reap(watched.child)
            if status is not None:
                return {"reason": reason, "status": status}
        if time.monotonic() < deadline:
            continue
        if reason == "timeout":
            return {"reason": reason}
        deadline, reason = time.monotonic() + GRACE_S, "timeout"
        _signal_group(watched.child, signal.SIGTERM)


def _answered(watched: _Watched, event: int) -> bool:
    """Whether the filter had a question; it has none any more when all that it confined has ended."""
    if watched.listener is None or not event & select.POLLIN:
        return False
    answer(watched.listener, watched.writable)
    return True


def _notice_children() -> int:
    """A descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _reap(child: int) -> int | None:
    """Collect what has ended, inherited daemons included; the status of `child` if it was among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)


def _sweep() -> None:
    """Kill our children until there are none: killing one hands its own children over to us."""
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
            if name.isdecimal() and _parent(int(name)) == own:
                os.kill(int(name), signal.SIGKILL)  # ours until we collect it: the id cannot be another's
        time.sleep(0.001)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it may have ended a moment ago
        os.killpg(leader, number)


def _remove(folder: str) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # the walk goes on into it after this
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(f"{path}/{name}")
        for name in folders:
            inner = f"{path}/{name}"
            os.unlink(inner) if os.path.islink(inner) else os.rmdir(inner)
    os.rmdir(folder)
