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
from typing import Any, NamedTuple, NoReturn

from services.tools.sandbox.confinement import kernel
from services.tools.sandbox.confinement.confine import become
from services.tools.sandbox.confinement.policy import Policy, from_json
from services.tools.sandbox.supervisor.processes import Population
from services.tools.sandbox.supervisor.seccomp_notify import answer
from services.tools.sandbox.supervisor.sweep import parent, reap, remove_tree, sweep

GRACE_S = 2.0
"""Between TERM and KILL when the time is over."""

INTERRUPTED = b"i"
"""The answer to an interrupt, once the signal is sent: what the command does next is not hit by it."""

Ending = dict[str, Any]
"""reason (exited, timeout, failed, abandoned), and status (negative: a signal) or error."""


class _Watched(NamedTuple):
    """What the supervisor waits for, as descriptors, and the process it waits for."""

    child: int
    link: int
    wakeups: int
    listener: int | None
    """What the filter asks (questions.py); None without a filter."""

    writable: tuple[str, ...]
    population: Population


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
        sweep()
    with suppress(OSError):  # the service may have left
        os.write(link, json.dumps(ending).encode())
    with suppress(OSError, RecursionError):  # a tree too deep for us stays for whoever empties the temporary folder
        remove_tree(home)


def _supervise(policy: Policy, home: str, link: int, wakeups: int) -> Ending:
    port = _hand_over_listener(link) if policy.network else None
    failure, told = os.pipe()
    questions, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _become(policy, home, port, told, theirs)
    os.close(told)
    theirs.close()
    # Only the command holds the pipes of its output now: their end is its end.
    nowhere = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    _, listeners, _, _ = socket.recv_fds(questions, 1, 1)
    writable = tuple(os.path.realpath(path) for path in (policy.folder, home, *policy.writable))
    population = Population(policy.limits.processes)
    watched = _Watched(child, link, wakeups, listeners[0] if listeners else None, writable, population)
    ending = _wait(watched, policy.timeout_s)
    error = os.read(failure, 4096)
    return {"reason": "failed", "error": error.decode(errors="replace")} if error else ending


def _become(policy: Policy, home: str, port: int | None, told: int, questions: socket.socket) -> NoReturn:
    try:
        become(policy, home, port, (os.getppid(), _service_pid()), questions)
    except BaseException as error:  # whatever it is, a second supervisor must not come back from here
        os.write(told, f"{type(error).__name__}: {error}"[:4000].encode(errors="replace"))
    os._exit(127)


def _hand_over_listener(link: int) -> int:
    """The port at which the service answers from now on, in our network namespace; its socket goes over the link."""
    with socket.socket() as listener, socket.socket(fileno=os.dup(link)) as sending:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        socket.send_fds(sending, [b"n"], [listener.fileno()])
        return listener.getsockname()[1]


def _service_pid() -> int:
    """The parent of our parent."""
    return parent(os.getppid())


def _wait(watched: _Watched, timeout_s: float) -> Ending:
    """Until the command ends, its time is over, or the link has ended."""
    poll = select.poll()
    for fd in (watched.link, watched.wakeups, watched.listener):
        if fd is not None:
            poll.register(fd, select.POLLIN)
    deadline, reason = time.monotonic() + timeout_s, "exited"
    while True:
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if watched.link in ready and not _obeyed(watched):
            return {"reason": "abandoned"}
        if watched.listener in ready and not _answered(watched, ready[watched.listener]):
            poll.unregister(watched.listener)
        if watched.wakeups in ready:
            os.read(watched.wakeups, 4096)
            status = reap(watched.child)
            if status is not None:
                return {"reason": reason, "status": status}
        if time.monotonic() < deadline:
            continue
        if reason == "timeout":
            return {"reason": reason}
        deadline, reason = time.monotonic() + GRACE_S, "timeout"
        _signal_group(watched.child, signal.SIGTERM)


def _obeyed(watched: _Watched) -> bool:
    """Whether the link said something; the only thing it says is that what the command does is to be interrupted."""
    if not os.read(watched.link, 16):
        return False
    _signal_group(watched.child, signal.SIGINT)
    with suppress(OSError):
        os.write(watched.link, INTERRUPTED)
    return True


def _answered(watched: _Watched, event: int) -> bool:
    """Whether the filter had a question; it has none any more when all that it confined has ended."""
    if watched.listener is None or not event & select.POLLIN:
        return False
    answer(watched.listener, watched.writable, watched.population)
    return True


def _notice_children() -> int:
    """A descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it may have ended a moment ago
        os.killpg(leader, number)
