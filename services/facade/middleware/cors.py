"""Cross-origin requests: only pages of the configured origins may call this facade.

Origins are compared whole. Credentials are never allowed, because the session cookie is only for the console's
pages. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

import re

from aiohttp import web

from services.facade.middleware.request_lifecycle import REQUEST_ID, Handler

METHODS = "GET, HEAD, POST, DELETE"
EXPOSED = (
    f"{REQUEST_ID}, X-Chat-Id, Retry-After, Content-Disposition, Content-Range, ETag, Mcp-Session-Id, X-Should-Retry"
)
"""Headers that pages may read; the last two serve MCP and OpenAI clients in a browser."""

MAX_AGE_S = 600

_HEADER_NAMES = re.compile(r"[\w-]+( *, *[\w-]+){0,63}", re.ASCII)
"""Format of Access-Control-Request-Headers; allowed origins may send any header."""


class Cors:
    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not (
            request.method == "OPTIONS"
            and "Access-Control-Request-Method" in request.headers
            and request.headers.get("Origin") in self._origins
        ):
            return await handler(request)
        headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_S)}
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        if _HEADER_NAMES.fullmatch(wanted):
            headers["Access-Control-Allow-Headers"] = wanted
        return web.Response(status=204, headers=headers)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the CORS headers to a response before it is sent."""
        response.headers.add("Vary", "Origin")
        if (origin := request.headers.get("Origin")) in self._origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED
