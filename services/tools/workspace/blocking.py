"""Blocking work in a thread that is waited for even by a caller who is cancelled.

What the work uses (a descriptor, a temporary file) belongs to the caller, who closes it on leaving: closed under a
running thread, its number may by then name somebody else's file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def to_end(work: Callable[[], T]) -> T:
    """The result of `work`. A cancelled caller gets its CancelledError when the work has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # raised below, once
                await asyncio.wait({running})
        raise
