"""Removes workspaces and records of chats unused for days.

Each use renews a folder's change time (ctime), which no command can set back, so no live run loses its workspace.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import structlog

from services.runtime.files.disk import sync_folder
from services.runtime.rpc.field_rules import is_uuid
from services.tools.sandbox.supervisor.sweep import remove_tree

DAY_S = 24 * 60 * 60

GOING = ".going-"
"""Prefix of a folder being removed, so that no call finds half of it and the next run removes the rest."""

log = structlog.get_logger()


async def remove_unused(
    roots: Iterable[Path], days: float, read_held: Callable[[], Awaitable[Callable[[str], bool]]]
) -> None:
    """Remove them once a day; `read_held` determines the chats to keep, and if it fails nothing is removed."""
    roots = tuple(roots)
    while True:
        try:
            removed = await asyncio.to_thread(remove_older, roots, days, await read_held())
            log.info("unused folders removed", folders=removed, unused_days=days)
        except Exception:
            log.exception("unused folders not removed")  # the next attempt is tomorrow
        await asyncio.sleep(DAY_S)


def remove_older(roots: Iterable[Path], days: float, is_held: Callable[[str], bool] = lambda _: False) -> int:
    """Remove folders below `roots` last used more than `days` ago, and return their number; blocks. Chats that
    `is_held` are kept."""
    before = time.time() - days * DAY_S
    removed = 0
    for root in roots:
        for folder in _set_aside_unused(root, before, is_held):
            try:
                remove_tree(str(folder))
            except OSError as error:
                log.warning("folder not removed", folder=folder.name, problem=os.strerror(error.errno or 0))
            else:
                removed += 1
    return removed


def remove_folder(folder: Path) -> None:
    """Remove a chat's folder, which becomes invisible immediately. Raises OSError. Blocks."""
    going = folder.with_name(f"{GOING}{folder.name}-{secrets.token_hex(4)}")
    folder.rename(going)
    remove_tree(str(going))
    sync_folder(folder.parent)


def remove_leftovers(roots: Iterable[Path]) -> None:
    """Complete interrupted removals. Raises OSError. Blocks."""
    for root in roots:
        for folder in list(root.glob(f"{GOING}*")) if root.is_dir() else ():
            remove_tree(str(folder))


def _set_aside_unused(root: Path, before: float, is_held: Callable[[str], bool]) -> Iterator[Path]:
    if not root.is_dir():
        return
    for folder in list(root.iterdir()):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            continue
        if folder.name.startswith(GOING):
            yield folder
        elif is_uuid(folder.name) and status.st_ctime < before and not is_held(folder.name):
            yield folder.rename(folder.with_name(GOING + folder.name))
