"""Lets calls in a few at a time, tenant after tenant.

A thousand calls that come at once would all be begun in one turn of the event loop, and every other call of the process
would wait for them at each of its own steps.
"""

from __future__ import annotations

import asyncio
from collections import deque

PASSES_MAX = 2
"""Calls let in by one turn of the loop, at about 1 ms each: a call needs a dozen turns, and none is to be long."""


class Turnstile:
    """Used by the tasks of one loop; those who wait are bounded by what the server takes."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting calls by tenant; the tenant whose turn is next comes first."""
        self._passes_left = PASSES_MAX
        self._is_turning = False

    async def pass_through(self, tenant: str) -> None:
        """Return at once unless many come at this moment."""
        loop = asyncio.get_running_loop()
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop)
        if self._passes_left and not self._waiting:
            self._passes_left -= 1
            return
        passage: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(passage)
        await passage

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._passes_left = PASSES_MAX
        while self._waiting and self._passes_left:
            tenant, queue = next(iter(self._waiting.items()))
            del self._waiting[tenant]
            passage = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind all others
            if not passage.done():  # its caller may have left
                passage.set_result(None)
                self._passes_left -= 1
        self._is_turning = self._passes_left < PASSES_MAX
        if self._is_turning:
            loop.call_soon(self._turn, loop)
