"""Enforces a command's time and kills all it started: at its end, at its timeout, or when the link closes.

As the subreaper it inherits every daemon below it. Standard input has the policy, standard output and error are the
command's, the first argument is the link, a socket, and the second the service's mark (leftovers.py).
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
from typing import Any, NamedTuple

from services.tools.sandbox.supervisor import kernel
from services.tools.sandbox.supervisor.confine import become_command
from services.tools.sandbox.supervisor.notifications import Population, answer_notification
from services.tools.sandbox.supervisor.policy import GO, READY, SHARED_MEMORY, Policy, parse_policy
from services.tools.sandbox.supervisor.space_watch import Place, SpaceWatch
from services.tools.sandbox.supervisor.sweep import kill_children, read_parent, reap_children, remove_tree

GRACE_S = 2.0
"""Time between TERM and KILL."""

INTERRUPTED = b"i"

Ending = dict[str, Any]
"""Reason (exited, timeout, full, failed or abandoned) and status, negative for a signal; `error` explains it."""


class _Supervision(NamedTuple):
    child: int
    link: int
    wakeups: int
    listener: int | None
    """Descriptor of the filter's notifications; None without a filter."""

    writable: tuple[str, ...]
    population: Population
    space: SpaceWatch


def main() -> None:
    link = int(sys.argv[1])
    os.set_inheritable(link, False)
    with open(0, encoding="utf-8", closefd=False) as policy_file:
        policy = parse_policy(policy_file.read())
    # uvloop leaves the policy's descriptor and duplicates of the outputs open below it, asyncio does not.
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in {0, 1, 2, link, policy.channel}:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    wakeups = _watch_children()
    home = f"{policy.home_parent}/{policy.mark}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.mkdir(home, 0o700)
        ending = _supervise(policy, home, link, wakeups)
    except OSError as error:  # no room for its home, or no process for it
        ending = {"reason": "failed", "error": str(error)}
    finally:
        kill_children()
    with suppress(OSError):  # the service may have left
        os.write(link, json.dumps(ending).encode())
    with suppress(OSError):  # the next service removes the rest (leftovers.py)
        remove_tree(home)


def _supervise(policy: Policy, home: str, link: int, wakeups: int) -> Ending:
    port = _hand_over_listener(link) if policy.network else None
    space = SpaceWatch(_list_places(policy, home))
    failure, failure_writer = os.pipe()
    questions, child_questions = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            become_command(policy, home, port, (os.getppid(), read_parent(os.getppid())), child_questions)
        except BaseException as error:  # whatever it is, the fork must not continue as a second supervisor
            os.write(failure_writer, f"{type(error).__name__}: {error}"[:4000].encode(errors="replace"))
        os._exit(127)
    os.close(failure_writer)
    child_questions.close()
    # Only the command now holds the pipes of its output, so they end with it.
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    is_ready, listeners, _, _ = socket.recv_fds(questions, 1, 1)
    if is_ready and not _wait_for_go(link, questions):
        return {"reason": "abandoned"}
    writable = tuple(os.path.realpath(path) for path in (policy.folder, home, *policy.writable))
    population = Population(policy.limits.processes)
    watched = _Supervision(child, link, wakeups, listeners[0] if listeners else None, writable, population, space)
    ending = _wait_for_end(watched, policy.timeout_s)
    error = os.read(failure, 4096)
    return {"reason": "failed", "error": error.decode(errors="replace")} if error else ending


def _list_places(policy: Policy, home: str) -> list[Place]:
    if policy.space is None:
        return []
    space = policy.space
    workspace = Place(
        *("workspace", policy.folder, space.bytes_max, space.files_max),
        used_bytes=space.used_bytes,
        reserve_bytes=space.reserve_bytes,
    )
    if space.is_full:
        workspace = workspace.allow_present()
    is_on_same_disk = os.stat(home).st_dev == os.stat(policy.folder).st_dev
    private_home = Place(
        *("private home", home, policy.limits.home_bytes, policy.limits.home_files),
        reserve_bytes=space.reserve_bytes if is_on_same_disk else 0,
    )
    # Its own file system, except for a workspace that is mounted below it.
    is_own = policy.namespaces and not policy.folder.startswith(f"{SHARED_MEMORY}/")
    shared_memory = Place("shared memory", SHARED_MEMORY, policy.limits.shared_bytes, policy.limits.home_files)
    return [workspace, private_home, *([shared_memory] if is_own else [])]


def _hand_over_listener(link: int) -> int:
    """Create the listener, send it over the link, and return its port in our network namespace."""
    with socket.socket() as listener, socket.socket(fileno=os.dup(link)) as sending:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        socket.send_fds(sending, [b"n"], [listener.fileno()])
        return listener.getsockname()[1]


def _wait_for_go(link: int, questions: socket.socket) -> bool:
    """Let the command begin when the service permits it; return False if the link has ended."""
    with suppress(OSError):
        os.write(link, READY)
    if os.read(link, 1) != GO:
        return False
    questions.send(GO)
    return True


def _wait_for_end(watched: _Supervision, timeout_s: float) -> Ending:
    poll = select.poll()
    for fd in (watched.link, watched.wakeups, watched.listener):
        if fd is not None:
            poll.register(fd, select.POLLIN)
    deadline, reason = time.monotonic() + timeout_s, "exited"
    while True:
        due = min(deadline, watched.space.due_s)
        ready = dict(poll.poll(max(0.0, due - time.monotonic()) * 1000))
        if watched.link in ready and not _read_link(watched):
            return {"reason": "abandoned"}
        if watched.listener is not None and watched.listener in ready:
            if ready[watched.listener] & select.POLLIN:
                answer_notification(watched.listener, watched.writable, watched.population)
            else:  # everything that the filter confined has ended
                poll.unregister(watched.listener)
        if watched.wakeups in ready:
            os.read(watched.wakeups, 4096)
            status = reap_children(watched.child)
            if status is not None:
                return {"reason": reason, "status": status}
        if time.monotonic() >= watched.space.due_s and (problem := watched.space.look()):
            return {"reason": "full", "error": problem}
        if time.monotonic() < deadline:
            continue
        if reason == "timeout":
            return {"reason": reason}
        deadline, reason = time.monotonic() + GRACE_S, "timeout"
        _signal_group(watched.child, signal.SIGTERM)


def _read_link(watched: _Supervision) -> bool:
    """Read from the link; return False if it has ended."""
    if not os.read(watched.link, 16):
        return False
    _signal_group(watched.child, signal.SIGINT)
    with suppress(OSError):
        os.write(watched.link, INTERRUPTED)
    return True


def _watch_children() -> int:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it may have ended a moment ago
        os.killpg(leader, number)
