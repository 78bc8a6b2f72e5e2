"""Requests to authorization servers: to addresses that were checked, bounded, without redirects, by https alone.

Which servers these are a stranger says: the MCP server's answer, or metadata that it leads to.
"""

from __future__ import annotations

import asyncio

import httpx2

from services.runtime.net.allow_list import AllowList
from services.runtime.net.authorization_code import is_safe_url
from services.runtime.net.checked_addresses import checked_addresses, resolve_name
from services.runtime.net.targets import TargetRefused, parse_target
from services.tools.web.http_client import load_http_client

TIMEOUT_S = 15.0

ANSWER_BYTES_MAX = 256 * 1024


class AuthorizationFailed(Exception):
    """An authorization server cannot be used, or refuses; the text says why, and has no secret in it."""


class TokensRefused(AuthorizationFailed):
    """It takes a code or a refresh token no more."""


async def send(request: httpx2.Request, allow: AllowList, timeout_s: float = TIMEOUT_S) -> httpx2.Response:
    """Send it and read the answer, of any status. Beside the public web it reaches what `allow` has.

    Raises:
        AuthorizationFailed: It must not be reached, or does not answer.
    """
    check_url(str(request.url))
    await load_http_client()
    import aiohttp

    try:
        async with asyncio.timeout(timeout_s):
            return await _send_pinned(request, allow)
    except TargetRefused as error:
        raise AuthorizationFailed(f"{error} (oauth.hosts in mcp.json opens hosts)") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
        # The error's own text may have the address with what stands in it.
        raise AuthorizationFailed(f"{request.url.host} does not answer ({type(error).__name__})") from error


async def _send_pinned(request: httpx2.Request, allow: AllowList) -> httpx2.Response:
    from services.runtime.net.bounded_body import read_bounded_body
    from services.runtime.net.pinned_connection import pinned_session

    target = parse_target(str(request.url), allow)
    addresses = await checked_addresses(target, resolve_name, allow)
    headers = {"accept-encoding": "identity"} | {
        name: value for name, value in request.headers.items() if name not in ("host", "content-length")
    }
    async with (
        pinned_session(addresses) as session,
        session.request(
            request.method, target.url, data=request.content or None, headers=headers, allow_redirects=False
        ) as response,
    ):
        return httpx2.Response(response.status, content=await read_bounded_body(response, ANSWER_BYTES_MAX))


def check_url(url: str) -> None:
    if not is_safe_url(url):
        raise AuthorizationFailed("an address that it names is not https")
