"""The time of a replay: the recorded one. Silences are jumped over, and timers ring as they did."""

from __future__ import annotations

import asyncio
import time

LOOK_S = 0.02
"""Longest jump at once: timers that follow from each other ring in their order."""

LOOKS_MAX = 200
"""Jumps for a silence; longer ones make longer jumps."""


class ReplayLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0
        """How far the loop's clock is ahead of the machine's."""

    def time(self) -> float:
        return super().time() + self.ahead_s


class ReplayClock:
    """The wall clock stands at the line of the tape that is next; the other clock is the loop's."""

    def __init__(self, loop: ReplayLoop, began_at_ms: int) -> None:
        self._loop = loop
        self._began_at_ms = began_at_ms
        self._began_s = loop.time()
        self.at_ms = 0
        """Since the run began."""

    def time_ns(self) -> int:
        return (self._began_at_ms + self.at_ms) * 1_000_000

    def monotonic(self) -> float:
        return self._loop.time()

    def thread_time(self) -> float:
        return time.thread_time()

    def start(self) -> None:
        self._began_s = self._loop.time()

    async def go_to(self, at_ms: int, speed: float) -> None:
        """Let the time of the tape come: at once, or at `speed` times the recorded pace."""
        self.at_ms = max(self.at_ms, at_ms)
        missing_s = self._began_s + at_ms / 1000 - self._loop.time()
        if missing_s <= 0:
            return
        if speed > 0:
            await asyncio.sleep(missing_s if speed == 1 else 0)
            if speed != 1:
                await self._pass_slowly(missing_s, speed)
            return
        step_s = max(LOOK_S, missing_s / LOOKS_MAX)
        while missing_s > 0:
            self._loop.ahead_s += min(step_s, missing_s)
            missing_s -= step_s
            await asyncio.sleep(0)

    async def _pass_slowly(self, missing_s: float, speed: float) -> None:
        """Wait a `speed`th of the time, and move the loop's clock by the rest."""
        waited_s = missing_s / speed
        await asyncio.sleep(waited_s)
        self._loop.ahead_s += max(0.0, missing_s - waited_s)
