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
    """Raise a gRPC status as its HeadraceError; a status that is not ours stays a grpc.RpcError."""
    try:
        yield
    except grpc.RpcError as error:
        if isinstance(error, grpc.aio.AioRpcError | grpc.Call) and (known := from_rpc_error(error)):
            raise known from error
        raise


@asynccontextmanager
async def reading(call: grpc.aio.UnaryStreamCall[Any, Reply]) -> AsyncGenerator[AsyncIterator[Reply]]:
    """Read `call` inside the block; leaving it in any way cancels the call, which would otherwise continue and cost.

    Raises:
        HeadraceError: The service raised it, at any point.
    """
    try:
        with rpc_errors():
            yield aiter(call)
    finally:
        call.cancel()
