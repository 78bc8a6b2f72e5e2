"""Supervises one stdio server, so that no process is left when the server or the service ends.

The SDK kills only the server's process group, and not even that if the service is killed. Standard library only: it
runs without site packages.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

from services.tools.sandbox.supervisor import kernel
from services.tools.sandbox.supervisor.sweep import kill_children, reap_children

GRACE_S = 1.0
"""Time between TERM and KILL; shorter than the 2 s after which the SDK kills us."""

_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)
"""Signals that are blocked and waited for: the service's end or request, and a child's end.

Both come at once when the service is killed, because the server then reads the end of its input. A handler that raised
could interrupt the removal of the server's daemons.
"""


def main() -> None:
    """Arguments are the service's process id, variables to remove from the server's environment, and the command with
    its full path."""
    service, unwanted, *command = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(service):
        return
    try:
        child = os.fork()
        if child == 0:
            _run_server(command, unwanted.split(","))
        # Only the server holds the pipes now: their end is its end.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        while signal.sigwait(_SIGNALS) == signal.SIGCHLD and reap_children(child) is None:
            pass
    finally:
        _end_children()


def _run_server(command: list[str], unwanted: list[str]) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name in unwanted:
        os.unsetenv(name)
    with suppress(OSError):  # so that the SDK sees the end of its output
        os.execv(command[0], command)
    os._exit(127)


def _end_children() -> None:
    deadline = time.monotonic() + GRACE_S
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        for pid in file.read().split():
            os.kill(int(pid), signal.SIGTERM)  # ours until we collect it: the id cannot be another's
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.005)
    kill_children()
