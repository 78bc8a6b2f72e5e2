"""Watching definition files, so that a change takes effect without a restart.

What is there is looked at every interval and compared: this sees what a notification about a folder misses, a folder
that appears late or is replaced whole, a link that is turned (so Kubernetes updates a mounted ConfigMap), and changes
on shared volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import structlog

REFRESH_INTERVAL_MS = 300
"""How often files are looked at; a look costs about 5 µs for each of them."""

INTERVAL_MS_MIN = 10
"""Looking more often would keep the process busy with nothing else."""

UNSETTLED_LOOKS_MAX = 10
"""An editor writes a file in several steps, so a reload waits for a look without a change, but not for ever."""

Seen: TypeAlias = frozenset[tuple[str, int, int]]

log = structlog.get_logger()


async def watch_path(path: Path, reload: Callable[[], None], *, interval_ms: int = REFRESH_INTERVAL_MS) -> None:
    """Call `reload` after each change of the file `path`, or of a file in the folder `path`, until cancelled.

    `reload` keeps what was in force when it finds a mistake; it must not raise. What is missing is waited for. Files
    are read in `reload` itself, on the loop: definition folders are small.
    """
    interval_s = max(interval_ms, INTERVAL_MS_MIN) / 1000
    loaded = _list_stamps(path)
    while True:
        await asyncio.sleep(interval_s)
        seen = _list_stamps(path)
        if seen == loaded:
            continue
        for _ in range(UNSETTLED_LOOKS_MAX):
            before = seen
            await asyncio.sleep(interval_s)
            if (seen := _list_stamps(path)) == before:
                break
        loaded = seen
        log.debug("files changed", path=str(path), files=len(seen))
        reload()


def _list_stamps(path: Path) -> Seen:
    """Which files there are, each with what changes when it does."""
    try:
        return frozenset(
            stamp for file in (path.iterdir() if path.is_dir() else (path,)) for stamp in _stamp_file(file)
        )
    except OSError:  # the folder has just gone
        return frozenset()


def _stamp_file(file: Path) -> tuple[tuple[str, int, int], ...]:
    """The file's name, inode and time of change; nothing for a file that is not there, or a link to nothing."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return ((file.name, stat.st_ino, stat.st_ctime_ns),)
