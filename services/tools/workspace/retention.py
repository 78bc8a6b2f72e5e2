"""Removes workspaces and records of chats that nobody has used for days.

Each use renews a folder's time of change (ctime), which no command can set back, so no live run loses its workspace.
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
"""Prefix of a folder being removed, so that no call finds half of it and the next run removes the rest."""

log = structlog.get_logger()


async def remove_unused(roots: Iterable[Path], days: float) -> None:
    roots = tuple(roots)
    while True:
        try:
            removed = await asyncio.to_thread(remove_older, roots, days)
            log.info("unused folders removed", folders=removed, unused_days=days)
        except Exception:
            log.exception("unused folders not removed")  # the next attempt is tomorrow
        await asyncio.sleep(DAY_S)


def remove_older(roots: Iterable[Path], days: float) -> int:
    """Removes folders below `roots` last used more than `days` ago, and returns how many; blocks."""
    before = time.time() - days * DAY_S
    removed = 0
    for root in roots:
        for folder in _set_aside_unused(root, before):
            try:
                for path, _, _ in os.walk(folder):
                    os.chmod(path, 0o700)  # a folder may be read-only, as linked skills are; the walk goes on into it
                shutil.rmtree(folder)
            except OSError as error:
                log.warning("folder not removed", folder=folder.name, problem=os.strerror(error.errno or 0))
            else:
                removed += 1
    return removed


def _set_aside_unused(root: Path, before: float) -> Iterator[Path]:
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
