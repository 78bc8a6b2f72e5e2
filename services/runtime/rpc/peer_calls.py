"""Calls from one service of the suite to another, which may be restarting.

Every call carries the ids and credentials of the call that it is part of; a unary one also has a deadline, and raises
our own errors. Idempotent calls are repeated until their deadline if the connection breaks; answers, including errors,
are never repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from headrace.errors import HeadraceError, ProviderUnavailable, find_peer_name
from headrace.streams import rpc_errors
from services.runtime.rpc.call_ids import forward_metadata

DELAY_S = 0.05
"""The channel itself waits until its peer is available."""


@contextmanager
def translating_peer_errors() -> Generator[None]:
    """Translate a deadline to ProviderUnavailable, like an unavailable peer."""
    try:
        with rpc_errors():
            yield
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise ProviderUnavailable(f"{find_peer_name(error)} did not answer in time; try again") from error


class Unary(Protocol):
    def __call__(self, request: Any, *, timeout: float, metadata: Any = None, wait_for_ready: bool = False) -> Any: ...


def complete_calls(stub: Any, service: ServiceDescriptor, timeout_s: float) -> None:
    """Give the stub's calls the metadata of their task; give unary ones `timeout_s` and our errors.

    A call may still pass its own `timeout` and `metadata`. A stream has no deadline.
    """
    for method in service.methods:
        ask = getattr(stub, method.name)
        setattr(stub, method.name, carry_metadata(ask) if method.server_streaming else _complete(ask, timeout_s))


def carry_metadata(ask: Any) -> Any:
    def ask_stream(request: Any, *, timeout: float | None = None, metadata: Any = None) -> Any:
        return ask(request, timeout=timeout, metadata=forward_metadata() if metadata is None else metadata)

    return ask_stream


def _complete(ask: Unary, timeout_s: float) -> Any:
    async def ask_unary(request: Any, *, timeout: float = timeout_s, metadata: Any = None) -> Any:
        try:
            return await ask(request, timeout=timeout, metadata=forward_metadata() if metadata is None else metadata)
        except grpc.RpcError as error:
            with translating_peer_errors():
                raise error

    return ask_unary


def repeat_until_answered(ask: Unary) -> Any:

    async def ask_until_answered(request: Any, *, timeout: float, metadata: Any = None) -> Any:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            left_s = until - loop.time()
            try:
                return await ask(request, timeout=left_s, metadata=metadata, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if not is_broken_connection(error) or until - loop.time() <= DELAY_S:
                    raise
            await asyncio.sleep(DELAY_S)

    return ask_until_answered


def was_broken_connection(error: HeadraceError) -> bool:
    return isinstance(error.__cause__, grpc.aio.AioRpcError) and is_broken_connection(error.__cause__)


def is_broken_connection(error: grpc.aio.AioRpcError) -> bool:
    """Errors of the service itself have details, which broken connections lack."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        return False
    return not any(name == "grpc-status-details-bin" for name, _ in error.trailing_metadata() or ())
