"""Reads body and headers of a request within limits."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.errors import InvalidRequest
from services.runtime.auth.identity import current_tenant
from services.runtime.capacity import Capacity

BODY_TIMEOUT_S = 60.0
"""Timeout of reading a whole body, enough for 4 MiB at 70 kB/s; aiohttp itself waits forever."""

JSON_TYPES = ("application/json",)

LARGE_BODIES_MAX = 4
"""Maximum number of bodies above the usual limit in memory at a time."""


class LargeBodies:
    """Reads bodies of up to `bytes_max`, at most LARGE_BODIES_MAX above the usual limit at a time."""

    def __init__(self, bytes_max: int, *, is_shared: bool) -> None:
        """With `is_shared` several tenants call, and each must leave places for others."""
        self._bytes_max = bytes_max
        self._places = Capacity(LARGE_BODIES_MAX, is_shared=is_shared)

    @asynccontextmanager
    async def reading_body(self, request: web.Request) -> AsyncGenerator[bytes]:
        """Read the JSON body; the caller must not keep it beyond the block.

        Raises:
            InvalidRequest: Its Content-Type is not JSON.
            Overloaded: Too many large bodies are being read, or the tenant has its share of them.
        """
        if (request.content_length or 0) <= request.client_max_size:
            yield await read_body(request)
            return
        with self._places.using_slot(current_tenant(), "large bodies are being read"):
            yield await read_body(request.clone(client_max_size=self._bytes_max))


async def read_body(request: web.Request, *, types: Collection[str] = JSON_TYPES) -> bytes:
    """Read the JSON body, without the byte order mark that some programs write before it; otherwise `read_raw_body`."""
    return (await read_raw_body(request, types=types)).removeprefix(BOM_UTF8)


async def read_raw_body(
    request: web.Request, *, timeout_s: float = BODY_TIMEOUT_S, types: Collection[str] = JSON_TYPES
) -> bytes:
    """Read the JSON body byte for byte; its Content-Type must be one of `types`.

    Raises:
        InvalidRequest: The Content-Type is not JSON. Pages of other origins may send form or text types, or none,
            without a preflight, so those are refused.
    """
    if not has_type(request, types):
        raise InvalidRequest.of("Content-Type", "must be application/json")
    check_size(request, request.client_max_size)  # aiohttp limits a body of undeclared size
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.HTTPRequestEntityTooLarge:
        raise make_too_large(request.client_max_size) from None


def has_type(request: web.Request, types: Collection[str] = JSON_TYPES) -> bool:
    content_type = read_single_header(request, "Content-Type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    is_json = kind.startswith("application/") and kind.endswith("+json")  # RFC 6839
    return kind in types or ("application/json" in types and is_json)


def check_size(request: web.Request, bytes_max: int) -> None:
    """Refuse an unread body if it declares too large a size, or is compressed and may hide its size."""
    if (read_single_header(request, "Content-Encoding") or "identity").lower() != "identity":
        raise InvalidRequest.of("Content-Encoding", "must be absent; send the body uncompressed")
    if (read_single_header(request, "Transfer-Encoding") or "chunked").lower() != "chunked":
        raise InvalidRequest.of("Transfer-Encoding", "must be chunked alone")
    if (request.content_length or 0) > bytes_max:
        raise make_too_large(bytes_max)


def make_too_large(bytes_max: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(bytes_max, 0, text=f"must not be larger than {bytes_max} bytes")


def read_single_header(request: web.Request, name: str) -> str | None:
    """Return a header that must not be repeated; None if it is absent."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise InvalidRequest.of(name, "must be given once")
    return values[0] if values else None
