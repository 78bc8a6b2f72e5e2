"""Streams that have no end of their own: a service that stops ends them, rather than wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Watches:
    def __init__(self) -> None:
        self._open: dict[asyncio.Timeout, None] = {}
        self._is_over = False

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Run the block until it ends or the service stops, which leaves it without an error."""
        ending = asyncio.timeout(0 if self._is_over else None)
        try:
            async with ending:
                self._open[ending] = None
                yield
        except TimeoutError:
            if not ending.expired():
                raise
        finally:
            self._open.pop(ending, None)

    def end_all(self) -> None:
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for ending in self._open:
            ending.reschedule(now)
