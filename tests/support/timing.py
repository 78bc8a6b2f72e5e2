"""Time limits that hold on a busy machine too."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

TICK_S = 0.001


@asynccontextmanager
async def within(seconds: float) -> AsyncGenerator[None]:
    """Like `asyncio.timeout`, for a limit that the test itself checks.

    Time is counted in short sleeps of the loop instead of by the clock: on a busy machine the process wakes late from
    each of them, just as it does from each step of the limited work.
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
    """Return the measured value once it is not 0 and has not changed for `for_s`, counted as in `within`."""
    unchanged, before = 0, measure()
    while not before or unchanged < for_s / TICK_S:
        await asyncio.sleep(TICK_S)
        unchanged, before = (unchanged + 1 if measure() == before else 0), measure()
    return before
