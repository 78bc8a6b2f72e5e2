"""Ends processes that a killed service left of its commands, and removes their folders.

Supervisors, private homes and the self-test's folder carry the mark of their service. bwrap's processes and supervisors
normally notice that the service is gone, unless they were interrupted while starting, or stopped. Nothing else needs
removal: mounts end with their namespace, and we create no cgroups.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from services.tools.sandbox.supervisor.policy import HOME_PARENT
from services.tools.sandbox.supervisor.sweep import SWEEP_S, remove_tree

LOOK_S = 0.1

GRACE_LOOKS = 20
"""Checks after which remaining processes are killed; most end on their own, more cleanly than we could end them."""

LOOKS_MAX = GRACE_LOOKS + round(SWEEP_S / LOOK_S)

_MARK = re.compile(rb"headrace-[0-9a-f]{8}-(\d+)-(\d+)")

log = structlog.get_logger()


def make_mark(data_dir: Path) -> str:
    """Return the mark of this process, which serves `data_dir`; no other process ever has the same one."""
    return f"{_make_prefix(data_dir)}{os.getpid()}-{_read_start(os.getpid())}"


async def sweep_leftovers(data_dir: Path) -> None:
    """End processes, then remove folders, of dead services of `data_dir`; their errors are never raised."""
    prefix = _make_prefix(data_dir)
    ended: set[int] = set()
    try:
        for look in range(LOOKS_MAX):
            pids = await asyncio.to_thread(lambda: set(_find_processes(prefix)))
            if not pids:
                break
            ended |= pids
            for pid in pids if look >= GRACE_LOOKS else ():
                with suppress(OSError):  # it has ended, or is another user's
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_S)
        folders = await asyncio.to_thread(_remove_folders, prefix)
    except OSError as error:
        log.warning("leftovers not swept", problem=os.strerror(error.errno or 0))
    else:
        if ended or folders:
            log.warning("leftovers of a killed service swept", processes=len(ended), folders=folders)


def _make_prefix(data_dir: Path) -> str:
    return f"headrace-{hashlib.sha256(os.fsencode(os.path.realpath(data_dir))).hexdigest()[:8]}-"


def _find_processes(prefix: str) -> Iterator[int]:
    """Yield processes with a mark in their arguments, or in their home: a command's daemon."""
    marked = re.compile(rb"(?:^|\0)(?:HOME=[^\0]*/)?(" + prefix.encode() + rb"\d+-\d+)(?=[-\0])")
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):  # it has ended, or is another user's
                for file in ("cmdline", "environ"):
                    mark = marked.search(Path(f"/proc/{name}/{file}").read_bytes())
                    if mark is not None and _is_left(mark[1]):
                        yield int(name)
                        break


def _remove_folders(prefix: str) -> int:
    removed = 0
    for parent in {HOME_PARENT, tempfile.gettempdir()}:
        for name in os.listdir(parent):
            if name.startswith(prefix) and _is_left(os.fsencode(name)):
                with suppress(OSError):  # it stays until the folder is emptied
                    remove_tree(f"{parent}/{name}")
                    removed += 1
    return removed


def _is_left(mark: bytes) -> bool:
    """Return whether the service of a mark has ended."""
    match = _MARK.match(mark)
    return match is not None and _read_start(int(match[1])) != int(match[2])


def _read_start(pid: int) -> int:
    """Return a process's start, in clock ticks since boot; 0 if it does not exist."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0
