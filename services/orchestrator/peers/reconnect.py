"""Repeats idempotent calls whose connection broke until their deadline, as the peer may be restarting.

Answers, errors included, are never repeated.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

from headrace.errors import HeadraceError

DELAY_S = 0.05
"""The channel itself waits until its peer is there."""


class Unary(Protocol):
    def __call__(self, request: Any, *, timeout: float, metadata: Any = None, wait_for_ready: bool = False) -> Any: ...


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
