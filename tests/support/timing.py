"""Time limits that hold on a busy machine too."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

TICK_S = 0.001


@asynccontextmanager
async def within(seconds: float) -> AsyncGenerator[None]:
    """Like `asyncio.timeout`, for a limit that a test is about.

    Time is counted in short sleeps of the loop instead of by the clock: a process that gets little of the machine wakes
    late from each of them, as it does from each step of the work that the limit is for.
    """

    async def tick(limit: asyncio.Timeout) -> None:
        for _ in range(round(seconds / TICK_S)):
            await asyncio.sleep(TICK_S)
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit:
        ticking = asyncio.create_task(tick(limit))
        try:
            yield
        finally:
            ticking.cancel()


async def until_still(measure: Callable[[], int], for_s: float = 0.2) -> int:
    """What is measured when it is not 0 and has not changed for so long, counted as in `within`."""
    unchanged, before = 0, measure()
    while not before or unchanged < for_s / TICK_S:
        await asyncio.sleep(TICK_S)
        unchanged, before = (unchanged + 1 if measure() == before else 0), measure()
    return before
