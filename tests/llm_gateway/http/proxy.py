"""A company proxy: tunnels for https://, forwarded requests for http://, with or without credentials."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"
UNAUTHORIZED = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"


@dataclass(slots=True)
class RunningProxy:
    port: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    """The head of each request to the proxy itself."""


@asynccontextmanager
async def serving_proxy(answer: bytes = b"", authorization: bytes = b"") -> AsyncGenerator[RunningProxy]:
    """Serve inside the block; with an `answer`, that is all the proxy says."""
    running = RunningProxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        running.heads.append(head)
        method, target = head.split(b" ")[:2]
        is_admitted = not authorization or b"Proxy-Authorization: " + authorization in head
        if answer or not is_admitted:
            writer.write(answer or UNAUTHORIZED)
            writer.close()
            return
        parts = urlsplit(f"//{target.decode()}" if method == b"CONNECT" else target.decode())
        there, onwards = await asyncio.open_connection(parts.hostname, parts.port)
        if method == b"CONNECT":
            writer.write(ESTABLISHED)
        else:
            onwards.write(head)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, onwards))
            group.create_task(_pass_on(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        running.port = server.sockets[0].getsockname()[1]
        yield running


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
