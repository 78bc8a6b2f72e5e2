"""Returns memory to the system that large answers leave behind.

The collector counts objects, not bytes: a dozen large things that ended in cycles hold all of their text until it has
seen some thousand further objects. What it frees then lies in the heap below something small.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os

GROWTH_BYTES = 32 << 20
"""Growth above the least seen since the last return that is looked into."""

LOOK_S = 10.0
"""Time between looks."""

YOUNG = 1
"""What has outlived several collections is left to them: to look at all that 1,000 streams have took 0.2 s, in which
none of them had its deltas, and found nothing."""


async def return_memory(*, growth_bytes: int = GROWTH_BYTES, look_s: float = LOOK_S) -> None:
    """Collect garbage and trim the heap whenever the process has grown, until cancelled."""
    trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    least_bytes = measure_rss()
    while True:
        await asyncio.sleep(look_s)
        least_bytes = min(least_bytes, measure_rss())
        if measure_rss() - least_bytes >= growth_bytes:
            gc.collect(YOUNG)
            if trim_heap is not None:
                trim_heap(0)
            least_bytes = measure_rss()


def measure_rss() -> int:
    """Return the process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
