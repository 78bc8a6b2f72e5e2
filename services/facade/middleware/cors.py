"""Cross-origin requests: pages of the origins that the settings name may call this facade, others may not.

Origins are compared whole. Nothing is said about credentials: the facade has no cookies.
https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

import re

from aiohttp import web

from headrace import errors
from services.facade.middleware.request_lifecycle import REQUEST_ID, Handler

METHODS = "GET, HEAD, POST, DELETE"
EXPOSED = f"{REQUEST_ID}, Retry-After, Content-Disposition, Content-Range, ETag"
MAX_AGE_S = 600

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OTHER_SITES = frozenset({"cross-site", "same-site"})
"""Values of Sec-Fetch-Site for requests that a page of another origin makes. Not Origin against Host: a
proxy in front may change the latter. https://www.w3.org/TR/fetch-metadata/"""

_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+){0,63}")
"""Any header may be sent by a page whose origin is allowed: clients add their own to every request."""


class Cors:
    """Answers to pages of other origins; those of `origins` may read them."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a browser that asks whether it may send a request."""
        if not self._is_preflight(request):
            return await handler(request)
        headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_S)}
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        if _HEADER_NAMES.fullmatch(wanted):
            headers["Access-Control-Allow-Headers"] = wanted
        return web.Response(status=204, headers=headers)

    @web.middleware
    async def refuse_cross_site(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a page of another origin makes a browser send: it cannot read the answer, but a run would go."""
        site = request.headers.get("Sec-Fetch-Site", "")
        if (
            request.method not in SAFE_METHODS
            and site in OTHER_SITES
            and request.headers.get("Origin") not in self._origins
        ):
            raise errors.PermissionDenied(
                "pages of other origins may call this facade only where its settings name them"
            )
        return await handler(request)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal of the application: say whether the page may read the answer."""
        response.headers.add("Vary", "Origin")
        if (origin := request.headers.get("Origin")) in self._origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED

    def _is_preflight(self, request: web.Request) -> bool:
        return (
            request.method == "OPTIONS"
            and "Access-Control-Request-Method" in request.headers
            and request.headers.get("Origin") in self._origins
        )
