"""What belongs to a chat that nobody has used for days goes: its workspace, and the records of its calls.

A folder is in use when a call, an upload or a download opens it; the kernel's own time of change tells, which no
command can set back. A run lives for minutes and opens its workspace with each call, so none that is live loses it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from services.runtime.rpc.field_rules import is_uuid

DAY_S = 24 * 60 * 60

GOING = ".going-"
"""Begins the name of a folder that is being removed: no call finds half of it, and the next day finds what is left."""

log = structlog.get_logger()


async def remove_unused(roots: Iterable[Path], days: float) -> None:
    """Every day, and at the start, remove what is unused, until cancelled."""
    roots = tuple(roots)
    while True:
        try:
            removed = await asyncio.to_thread(sweep, roots, days)
            log.info("unused folders removed", folders=removed, unused_days=days)
        except Exception:
            log.exception("unused folders not removed")  # tomorrow is another day
        await asyncio.sleep(DAY_S)


def sweep(roots: Iterable[Path], days: float) -> int:
    """Remove the chats' folders below `roots` that were last used more than `days` ago; how many there were. Blocks."""
    before = time.time() - days * DAY_S
    removed = 0
    for root in roots:
        for folder in _unused(root, before):
            try:
                _remove(folder)
            except OSError as error:
                log.warning("folder not removed", folder=folder.name, problem=os.strerror(error.errno or 0))
            else:
                removed += 1
    return removed


def _unused(root: Path, before: float) -> Iterator[Path]:
    """Folders to remove, already out of everybody's way."""
    if not root.is_dir():
        return
    for folder in list(root.iterdir()):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            continue
        if folder.name.startswith(GOING):
            yield folder
        elif is_uuid(folder.name) and status.st_ctime < before:
            yield folder.rename(folder.with_name(GOING + folder.name))


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)  # a folder may be read-only, as linked skills are; the walk goes on into it after this
    shutil.rmtree(folder)
