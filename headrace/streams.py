"""Reading a server stream so that leaving it cancels the call."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from headrace.errors import from_rpc_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

Reply = TypeVar("Reply")


@contextmanager
def rpc_errors() -> Generator[None]:
    """Raise a status as the HeadraceError that the service raised; any other status stays an AioRpcError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if known := from_rpc_error(error):
            raise known from error
        raise


@asynccontextmanager
async def reading(call: grpc.aio.UnaryStreamCall[Any, Reply]) -> AsyncGenerator[AsyncIterator[Reply]]:
    """Read `call` inside the block; leaving the block, however it happens, cancels it.

    A call that is merely dropped keeps running: the server generates, and the provider bills, until someone
    cancels. Breaking out of `async for` does not (grpcio 1.85).

    Raises:
        HeadraceError: The service raised it, before or after the first reply.
    """
    try:
        with rpc_errors():
            yield aiter(call)
    finally:
        call.cancel()
