"""Time limits that hold on a busy machine too."""

from __future__ import annotations

import asyncio
import selectors
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


class ScriptedClockLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anything can be done, and then goes to the next timer at once.

    For what waits for timers alone: nothing that comes from outside, such as over a socket, has time to come.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_SkippingSelector(self.skip))

    def time(self) -> float:
        return self._now_s

    def skip(self, seconds: float) -> None:
        self._now_s += seconds


class _SkippingSelector(selectors.DefaultSelector):
    """Looks what is there, and has the time skipped that it would wait."""

    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if not (ready := super().select(0)):
            self._skip(timeout)
        return ready
