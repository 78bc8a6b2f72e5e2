"""Counting what is being answered, so that a stopping facade can wait for it."""

from __future__ import annotations

from aiohttp import web

from services.facade.middleware.request_lifecycle import Handler
from services.runtime.in_flight import InFlightCounter


class OpenRequests(InFlightCounter):
    """How many requests are being answered. Belongs to one application."""

    @web.middleware
    async def count_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count `request` while `handler` answers it."""
        self.increment()
        try:
            return await handler(request)
        finally:
            self.decrement()
