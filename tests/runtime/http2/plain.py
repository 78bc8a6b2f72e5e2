"""A server that answers every whole request with the same body: what h2spec takes for a web server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.runtime.calls.inbox import Compressed, Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.http2.limits import DEFAULTS
from services.runtime.http2.server.connection import ServerConnection, ServerState
from services.runtime.http2.server.sockets import bind_address
from services.runtime.http2.stream import Stream

MESSAGE = b"a message"


def _unanswered(_: ServerConnection, __: Stream, ___: Headers) -> None:
    """Its answer comes when it is whole."""


class Plain(ServerConnection):
    """Has no calls: what is asked does not matter."""

    def __init__(self, server: ServerState) -> None:
        super().__init__(_unanswered, server)

    def on_remote_end(self, stream: Stream) -> None:
        self.send_headers(stream.id, [(b":status", b"200")])
        stream.send(MESSAGE)
        stream.end_local([(b"grpc-status", b"0")])

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        # What h2spec sends is no message.
        self.on_remote_end(stream)


@asynccontextmanager
async def plain_server() -> AsyncGenerator[int]:
    """The port that it listens on."""
    host = ServerState(1024 * 1024, 0, DEFAULTS)
    (listening,), port = bind_address("127.0.0.1:0")
    server = await asyncio.get_running_loop().create_server(lambda: Plain(host), sock=listening)
    try:
        yield port
    finally:
        server.close()
        await asyncio.gather(*(connection.close() for connection in host.connections))
