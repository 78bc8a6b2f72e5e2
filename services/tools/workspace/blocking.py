"""Does blocking work in a thread, which a cancelled caller waits for too.

The caller closes the descriptors on leaving: under a running thread, their number may by then name somebody else's
file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def run_to_end(work: Callable[[], T]) -> T:
    """Runs `work` in a thread; a cancelled caller gets its CancelledError when the work has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # raised below, once
                await asyncio.wait({running})
        raise
