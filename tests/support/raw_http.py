"""Raw bytes for an HTTP server that no client would send."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def sending(url: str, sent: bytes) -> AsyncGenerator[asyncio.StreamReader]:
    """Send bytes over a new connection and yield a reader of the answer; the connection closes with the block."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        writer.write(sent)
        yield reader
    finally:
        writer.close()


async def say(url: str, sent: bytes) -> bytes:
    """Send bytes and return everything the server answers."""
    async with sending(url, sent) as reader:
        return await reader.read()
