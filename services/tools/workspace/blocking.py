"""Does blocking work in a thread, which a cancelled caller waits for too.

The caller closes the descriptors on leaving: under a running thread, their number may by then name somebody else's
file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from services.runtime.completion import complete

T = TypeVar("T")


async def run_to_end(work: Callable[[], T]) -> T:
    """Runs `work` in a thread; a cancelled caller gets its CancelledError when the work has ended."""
    return await complete(asyncio.to_thread(work))
