"""Reads a server stream so that leaving it cancels the call."""

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
    """Raise a service's status as its HeadraceError; others stay AioRpcError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if known := from_rpc_error(error):
            raise known from error
        raise


@asynccontextmanager
async def reading(call: grpc.aio.UnaryStreamCall[Any, Reply]) -> AsyncGenerator[AsyncIterator[Reply]]:
    """Read `call` inside the block; leaving it in any way cancels the call.

    A call that is only dropped, as by breaking out of `async for` (grpcio 1.85), keeps generating and costing.

    Raises:
        HeadraceError: The service raised it, at any point.
    """
    try:
        with rpc_errors():
            yield aiter(call)
    finally:
        call.cancel()
