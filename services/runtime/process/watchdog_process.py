"""The watchdog's program: `watchdog_process.py SECONDS FILE`, with heartbeats on its standard input.

It imports little, because one runs with each service.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

CHECKS = 10
"""Number of checks without a heartbeat before the loop counts as stalled. Checks are counted, not timed: a machine that
was suspended for an hour has had one."""

DUMP_S = 1.0
"""Time for the process to dump its threads' stacks."""


def _watch(stall_s: float, threads: int) -> None:
    """Watch the parent's heartbeats on standard input until the parent closes it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent gets the signal, too
    missed = 0
    while missed < CHECKS:
        if select.select([0], [], [], stall_s / CHECKS)[0]:
            if not os.read(0, 4096):
                return
            missed = 0
        elif not _is_stopped(os.getppid()):
            missed += 1
    os.kill(os.getppid(), signal.SIGUSR2)
    time.sleep(DUMP_S)
    stacks = os.pread(threads, 1 << 20, 0).decode(errors="replace").splitlines()
    _report(stall_s, stacks)
    os.kill(os.getppid(), signal.SIGKILL)


def _report(stall_s: float, threads: list[str]) -> None:
    import json  # imported late: needed only once
    from contextlib import suppress

    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry = {"timestamp": moment, "level": "critical", "event": "event loop stalled", "seconds": stall_s}
    with suppress(OSError):  # the log has no reader
        os.write(2, json.dumps(entry | {"threads": threads}).encode() + b"\n")


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "Tt"


if __name__ == "__main__":
    _watch(float(sys.argv[1]), int(sys.argv[2]))
