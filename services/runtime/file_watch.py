"""Watches definition files by polling.

Notifications miss folders that appear late, links that are turned (Kubernetes' ConfigMaps) and shared volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import structlog

REFRESH_INTERVAL_MS = 300
"""Time between looks, which cost about 5 µs a file."""

INTERVAL_MS_MIN = 10
"""A shorter interval would keep the process busy with looking."""

UNSETTLED_LOOKS_MAX = 10
"""Looks after which a reload no longer waits for changes to settle."""

Seen: TypeAlias = frozenset[tuple[str, int, int]]

log = structlog.get_logger()


async def watch_path(path: Path, reload: Callable[[], None], *, interval_ms: int = REFRESH_INTERVAL_MS) -> None:
    """Call `reload`, which must not raise, after each change of the file or folder `path`, until cancelled.

    A missing path is waited for.
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
    try:
        return frozenset(
            stamp for file in (path.iterdir() if path.is_dir() else (path,)) for stamp in _stamp_file(file)
        )
    except OSError:  # the folder has just gone
        return frozenset()


def _stamp_file(file: Path) -> tuple[tuple[str, int, int], ...]:
    """Return a file's name, inode and time of change; nothing for a missing file or a broken link."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return ((file.name, stat.st_ino, stat.st_ctime_ns),)
