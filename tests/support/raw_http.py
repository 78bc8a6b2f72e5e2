"""Bytes to a server of HTTP that no client would send."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def sending(url: str, sent: bytes) -> AsyncGenerator[asyncio.StreamReader]:
    """Send bytes over a connection of their own, and yield the answer; leaving hangs up."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        writer.write(sent)
        yield reader
    finally:
        writer.close()


async def say(url: str, sent: bytes) -> bytes:
    """Everything that is answered to `sent`."""
    async with sending(url, sent) as reader:
        return await reader.read()
