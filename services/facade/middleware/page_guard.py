"""Refuses requests from pages of other origins, and requests under unknown host names.

A browser gives every page its user's position in the network. Without credentials the facade trusts that
position, so it must also refuse foreign names that resolve to its address (DNS rebinding).
https://www.w3.org/TR/fetch-metadata/
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from aiohttp import web

from headrace.errors import PermissionDenied
from services.facade.middleware.request_lifecycle import Handler

OUR_SITE = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site values of our own pages and of typed addresses."""

ANY_HOST = "*"

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]@/?#\\:\s]+)(?::\d*)?")
"""Format of the Host header: a name or an address, with an optional port."""


class PageGuard:
    def __init__(self, origins: frozenset[str], hosts: frozenset[str] | None) -> None:
        """`hosts` are the allowed names in addition to loopback names and IP addresses.

        None allows any name, because callers present credentials, which a page of another origin does not have.
        """
        self._origins = origins
        self._hosts = hosts

    @web.middleware
    async def refuse_foreign_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the request.

        Raises:
            PermissionDenied: A page of another origin sent it, or its Host is not allowed.
        """
        host = request.headers.get("Host", "")
        if self._hosts is not None and not _is_served(host, self._hosts):
            raise PermissionDenied(
                "this facade asks for no credentials, so it is served under loopback names and IP addresses alone, not "
                f"under {host[:256]!r}; HEADRACE_FACADE_HOSTS names others",
                host=host[:256],
            )
        if self._is_foreign(request, host):
            raise PermissionDenied(
                "pages of other origins may call this facade only where its settings name them "
                "(HEADRACE_FACADE_CORS_ORIGINS)"
            )
        return await handler(request)

    def _is_foreign(self, request: web.Request, host: str) -> bool:
        origin = request.headers.get("Origin")
        if origin in self._origins:
            return False
        # A proxy may change Host, so Sec-Fetch-Site takes precedence; browsers send it only on trustworthy
        # origins.
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            is_link = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
            return site not in OUR_SITE and (origin is not None or not is_link)
        if self._hosts is None or request.method == "OPTIONS":  # a preflight has no effect
            return False
        return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def _is_served(host: str, hosts: frozenset[str]) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].lower().strip("[]").removesuffix(".")
    return f".{name}".endswith(".localhost") or name in hosts or ANY_HOST in hosts or _is_ip_address(name)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
