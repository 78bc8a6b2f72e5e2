"""Counts open requests, so that a stopping facade can wait for them."""

from __future__ import annotations

from aiohttp import web

from services.facade.middleware.request_lifecycle import Handler
from services.runtime.capacity import InFlightCounter


class OpenRequests(InFlightCounter):
    @web.middleware
    async def count_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.increment()
        try:
            return await handler(request)
        finally:
            self.decrement()
