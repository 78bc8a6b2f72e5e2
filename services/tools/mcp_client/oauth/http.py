"""Requests to authorization servers: bounded, without redirects, by https alone."""

from __future__ import annotations

import asyncio

import httpx2

from services.runtime.net.authorization_code import is_safe_url
from services.tools.mcp_client.transport.bounded_stream import BoundedStream

TIMEOUT_S = 15.0

ANSWER_BYTES_MAX = 256 * 1024


class AuthorizationFailed(Exception):
    """An authorization server cannot be used, or refuses; the text says why, and has no secret in it."""


class TokensRefused(AuthorizationFailed):
    """It takes a code or a refresh token no more."""


async def send(request: httpx2.Request, timeout_s: float = TIMEOUT_S) -> httpx2.Response:
    """Send it and read the answer, of any status. Raises AuthorizationFailed."""
    check_url(str(request.url))
    timeout = httpx2.Timeout(timeout_s)
    try:
        # The client's own counts from one piece to the next.
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(timeout=timeout, follow_redirects=False, transport=_Transport()) as client,
        ):
            response = await client.send(request)
            await response.aread()
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        # The error's own text may have the address with what stands in it.
        raise AuthorizationFailed(f"{request.url.host} does not answer ({type(error).__name__})") from error
    return response


def check_url(url: str) -> None:
    if not is_safe_url(url):
        raise AuthorizationFailed("an address that it names is not https")


class _Transport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedStream(response.stream, ANSWER_BYTES_MAX)
        return response
