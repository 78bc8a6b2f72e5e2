"""Reads an HTTP answer's body, but no more of it than is wanted."""

from __future__ import annotations

import aiohttp


async def read_bounded_body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the body; raises ValueError if it is larger than `bytes_max`."""
    body = bytearray()
    while piece := await response.content.read(bytes_max + 1 - len(body)):
        body += piece
        if len(body) > bytes_max:
            raise ValueError(f"larger than {bytes_max} bytes")
    return bytes(body)
