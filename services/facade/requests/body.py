"""Body and headers of a request, read within limits."""

from __future__ import annotations

import asyncio

from aiohttp import web

from headrace.errors import InvalidRequest

BODY_TIMEOUT_S = 60.0
"""Timeout of a whole body, enough for 4 MiB at 70 kB/s; aiohttp itself waits forever."""


async def read_body(request: web.Request, *, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """Read the JSON body; a missing Content-Type counts as JSON, for short curl commands."""
    content_type = read_single_header(request, "Content-Type")
    if content_type is not None and "json" not in content_type.lower():
        raise InvalidRequest.of("Content-Type", "must be application/json")
    check_size(request, request.client_max_size)  # aiohttp stops reading one that does not say how large it is
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.HTTPRequestEntityTooLarge:
        raise make_too_large(request.client_max_size) from None


def check_size(request: web.Request, bytes_max: int) -> None:
    """Refuse unread a body that declares itself too large, or is compressed and may hide its size."""
    if (read_single_header(request, "Content-Encoding") or "identity").lower() != "identity":
        raise InvalidRequest.of("Content-Encoding", "must be absent; send the body uncompressed")
    if (request.content_length or 0) > bytes_max:
        raise make_too_large(bytes_max)


def make_too_large(bytes_max: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(bytes_max, 0, text=f"must not be larger than {bytes_max} bytes")


def read_single_header(request: web.Request, name: str) -> str | None:
    """Return a header that may not be repeated; None when it is absent."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise InvalidRequest.of(name, "must be given once")
    return values[0] if values else None
