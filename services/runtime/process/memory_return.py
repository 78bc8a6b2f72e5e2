"""Returns memory to the system: what large answers leave behind, and what nobody has used for a while.

The collector counts objects, not bytes: a dozen large things that ended in cycles hold all of their text until it has
seen some thousand further objects. What it frees then lies in the heap below something small.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os

from services.runtime.tokens import count

GROWTH_BYTES = 32 << 20
"""Growth above the least seen since the last return that is looked into."""

LOOK_S = 10.0
"""Time between looks."""

REST_S = 600.0
"""Time between drops of unused encodings: one goes when nobody has counted with it for once to twice as long."""

YOUNG = 1
"""What has outlived several collections is left to them: to look at all that 1,000 streams have took 0.2 s, in which
none of them had its deltas, and found nothing."""


async def return_memory(*, growth_bytes: int = GROWTH_BYTES, look_s: float = LOOK_S, rest_s: float = REST_S) -> None:
    """Trim the heap whenever the process has grown or something unused was dropped, until cancelled."""
    trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    least_bytes = measure_rss()
    rested_s = 0.0
    while True:
        await asyncio.sleep(look_s)
        rested_s += look_s
        has_dropped = False
        if rested_s >= rest_s:
            rested_s = 0.0
            has_dropped = count.drop_unused()
        least_bytes = min(least_bytes, measure_rss())
        if has_dropped or measure_rss() - least_bytes >= growth_bytes:
            gc.collect(YOUNG)
            if trim_heap is not None:
                trim_heap(0)
            least_bytes = measure_rss()


def measure_rss() -> int:
    """Return the process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
