"""Watching a folder of definition files, so that a change takes effect without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
from watchfiles import awatch

REFRESH_INTERVAL_MS = 300
"""How long changes are collected before a reload: an editor writes a file in several steps."""

log = structlog.get_logger()


async def watch(path: Path, reload: Callable[[], None], *, interval_ms: int = REFRESH_INTERVAL_MS) -> None:
    """Call `reload` after each change in `path`, until cancelled. A file is told by its suffix.

    `reload` keeps what was in force when it finds a mistake; it must not raise. A folder that does not exist is
    waited for. Files are read in `reload` itself, on the loop: definition folders are small.
    """
    folder = path.parent if path.suffix else path
    while not folder.is_dir():  # noqa: ASYNC110 - nothing tells when a folder appears
        await asyncio.sleep(interval_ms / 1000)
    async for changes in awatch(folder, debounce=interval_ms, step=min(50, interval_ms), recursive=False):
        if folder == path or any(Path(changed).name == path.name for _, changed in changes):
            log.debug("files changed", folder=str(folder), count=len(changes))
            reload()
