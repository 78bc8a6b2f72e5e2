"""Work that is done to its end, also where who waits for it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; a cancelled caller gets its CancelledError when the work has ended, whatever came of it."""
    running = asyncio.create_task(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # raised below, once
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # which nobody is told
        raise
