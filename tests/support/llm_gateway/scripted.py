"""A server of raw bytes, whose answer to each request a test controls, and calls to it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from services.llm_gateway.http.client import ProviderRequest, ProviderStream, opening_stream
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.http.request import Origin
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.gateway import provider_entry

ORDINARY = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TEST_TIMEOUT_S = 600.0
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass(slots=True)
class Exchange:
    """One request, and the way to answer it."""

    head: bytes
    body: bytes
    connection: int
    """Counted from 1."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, data: bytes, *, step: int | None = None) -> None:
        """`data`; with a `step` in so many bytes at a time, each a segment of its own."""
        step = step or max(len(data), 1)
        for start in range(0, len(data), step):
            self.writer.write(data[start : start + step])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def nothing_more(self) -> None:
        """Stay silent until the client has gone."""
        await self.reader.read()
        raise ConnectionResetError

    def hang_up(self) -> None:
        self.writer.close()


Answer: TypeAlias = "Callable[[Exchange], Awaitable[None]]"


@dataclass(slots=True)
class Scripted:
    """A running server."""

    origin: Origin
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has closed a connection."""

    @property
    def url(self) -> str:
        return f"{'https' if self.origin.is_tls else 'http'}://{self.origin.authority}"


@asynccontextmanager
async def serving_script(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Scripted]:
    """Serve inside the block, for at most TEST_TIMEOUT_S. `answer` is called for each request on any connection."""
    server: Scripted | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert server is not None
        server.connections += 1
        number = server.connections
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
                body = await reader.readexactly(int(size.split()[1]))
                server.exchanges.append(exchange := Exchange(head, body, number, reader, writer))
                await answer(exchange)
        except (OSError, asyncio.IncompleteReadError):
            server.closed.set()
        finally:
            writer.close()

    async with asyncio.timeout(TEST_TIMEOUT_S), await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        port = listening.sockets[0].getsockname()[1]
        server = Scripted(Origin("localhost" if tls else "127.0.0.1", port, tls is not None))
        yield server


TIMEOUTS = {"connectMs": 30_000, "firstDeltaMs": 5_000, "idleMs": 5_000}


def ask(server: Scripted, body: bytes = b"{}", **timeouts: int) -> ProviderRequest:
    """Make a request to `server`."""
    entry: dict[str, Any] = provider_entry(server.url, timeouts=TIMEOUTS | timeouts)
    return ProviderRequest(Provider.model_validate(entry), "sim-1", f"{server.url}/v1/chat", {}, body)


@asynccontextmanager
async def streaming(answer: Answer, **timeouts: int) -> AsyncGenerator[tuple[Scripted, ProviderStream]]:
    """Run a server, send it a request, and yield the server and the response stream."""
    async with (
        Pool() as pool,
        serving_script(answer) as server,
        opening_stream(pool, ask(server, b"{}", **timeouts)) as stream,
    ):
        yield server, stream


async def read(pool: Pool, request: ProviderRequest) -> bytes:
    """Send a request and return the whole body of the answer."""
    pieces: list[bytes] = []
    async with opening_stream(pool, request) as stream:
        while await stream.push_body(lambda piece: pieces.append(piece) is None):
            pass
    return b"".join(pieces)
