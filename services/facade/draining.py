"""Counting what is being answered, so that a stopping facade can wait for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from services.facade.around import Handler


class OpenRequests:
    """How many requests are being answered. Belongs to one application."""

    def __init__(self) -> None:
        self.count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    @web.middleware
    async def counting(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count `request` while `handler` answers it."""
        self.count += 1
        self._none_left.clear()
        try:
            return await handler(request)
        finally:
            self.count -= 1
            if not self.count:
                self._none_left.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when none is left, or after `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._none_left.wait()
