"""A server under attack, and checks that it still serves."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from services.runtime.http2.limits import Limits
from services.runtime.http2.server.server import Server
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, SILENCE_S, TEST_TIMEOUT_S, Caller, handlers
from tests.support.timing import until_still

QUICK = Limits(preface_s=0.3, request_s=0.3, last_calls_s=0.2, close_s=0.3, control_per_s=0, resets_per_s=0)
"""But for pings, which most of the tests' clients do not answer. Allowances do not grow: what a flood is does not
depend on how fast the machine reads it."""

OTHER = "test.Other"

ENDLESS = b"x" * 1000


@dataclass(slots=True)
class Handled:
    """Counters of the handlers."""

    running: int = 0
    begun: int = 0
    written: int = 0
    uploads: int = 0
    """Uploads received to their end."""

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        self.running += 1
        self.begun += 1
        try:
            yield
        finally:
            self.running -= 1

    async def unary(self, request: bytes, context: Any) -> bytes:
        async with self.call():
            return request

    async def stream(self, request: bytes, context: Any) -> AsyncGenerator[bytes]:
        """As many messages as asked for, then silence."""
        async with self.call():
            for _ in range(int(request or b"0")):
                yield ENDLESS
                self.written += 1
            await asyncio.sleep(SILENCE_S)

    async def upload(self, requests: Any, context: Any) -> bytes:
        size = 0
        async with self.call():
            async for request in requests:
                size += len(request)
        self.uploads += 1
        return b"%d" % size


@dataclass(slots=True)
class Victim:
    server: Server
    port: int
    handled: Handled

    async def serves(self) -> None:
        """Fail unless another client is served and no handler of the harmful one is left running."""
        await self.serves_others()
        await self.idle()

    async def serves_others(self) -> None:
        async with Channel(f"127.0.0.1:{self.port}", message_bytes_max=BYTES_MAX) as channel:
            assert await Caller(channel).unary(b"still there") == b"still there"

    async def idle(self) -> None:
        """Wait until no handler runs."""
        while self.handled.running:
            await asyncio.sleep(0.01)

    async def stuck(self) -> None:
        """Wait until handlers have begun and none of them gets anything away."""
        await until_still(lambda: self.handled.begun + self.handled.written)


@asynccontextmanager
async def victim(
    limits: Limits = QUICK,
    *,
    connection_age_s: float = 0.0,
    knows_callers: bool = False,
    context: ssl.SSLContext | None = None,
) -> AsyncGenerator[Victim]:
    server = Server(
        message_bytes_max=BYTES_MAX, limits=limits, connection_age_s=connection_age_s, knows_callers=knows_callers
    )
    handled = Handled()
    handlers(unary=handled.unary, stream=handled.stream, upload=handled.upload)(server)
    port = server.add_port("127.0.0.1:0", context)
    await server.start()
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            yield Victim(server, port, handled)
    finally:
        await server.stop(None)


def service(**named: Any) -> grpc.GenericRpcHandler:
    """Return a handler for the test's own methods."""
    return grpc.method_handlers_generic_handler(OTHER, named)
