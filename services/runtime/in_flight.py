"""Counts calls in progress, for which a stopping server waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class InFlightCounter:
    def __init__(self) -> None:
        self.count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    def increment(self) -> None:
        self.count += 1
        self._none_left.clear()

    def decrement(self) -> None:
        self.count -= 1
        if not self.count:
            self._none_left.set()

    async def wait_until_zero(self, timeout_s: float) -> None:
        """Return when no call is left, or after `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._none_left.wait()
