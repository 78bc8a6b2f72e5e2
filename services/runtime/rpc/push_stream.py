"""Streams of a service: messages passed on as bytes at arrival, and streams that end only when the service stops.

A source calls `MessageSink.send` from its callback, without a task's turn for each message; `push_messages` and
`pipe_messages` call it from the connection's callback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading, rpc_errors
from services.runtime.calls.call_kinds import UnaryStreamCall
from services.runtime.calls.server_call import ServerCall

QUEUE_MAX = 64
"""Messages queued for a slow reader before the source is paused."""


class MessageSink(Protocol):
    def send(self, message: bytes) -> bool:
        """Send or queue a message; False if `wait_until_drained` is due."""
        ...

    async def wait_until_drained(self) -> None:
        """Wait for the reader; if it has gone, the RPC's task is cancelled."""
        ...


def opening_sink(context: grpc.aio.ServicerContext[Any, Any]) -> AbstractAsyncContextManager[MessageSink]:
    """Yield a sink to the RPC's caller; leaving the block waits until everything is written."""
    return context if isinstance(context, ServerCall) else _queueing(context)


@asynccontextmanager
async def _queueing(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncGenerator[MessageSink]:
    line = _QueuedSink(context)
    writing = asyncio.create_task(line.write())
    try:
        yield line
        line.end()
        await writing
    except HeadraceError:
        # Messages sent before an error arrive before it.
        line.end()
        await writing
        raise
    finally:
        writing.cancel()
        # A write to a vanished reader fails; the RPC's task, which is being cancelled, learns of that separately.
        await asyncio.wait({writing})
        _ = writing.cancelled() or writing.exception()


async def push_messages(
    call: grpc.aio.UnaryStreamCall[Any, bytes],
    take: Callable[[bytes], bool | None],
    wait_until_drained: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Pass each message to `take` on arrival, or raise the service's error; leaving early cancels the call.

    After `take` has returned False, the source is paused until `wait_until_drained` returns.
    """
    if isinstance(call, UnaryStreamCall):
        try:
            await call.push_messages(take, wait_until_drained)
        except grpc.RpcError:
            with rpc_errors():
                raise
        finally:
            call.cancel()
        return
    async with reading(call) as messages:
        async for message in messages:
            if take(message) is False and wait_until_drained is not None:
                await wait_until_drained()


async def pipe_messages(call: grpc.aio.UnaryStreamCall[Any, bytes], sink: MessageSink) -> None:
    """Push all messages into `sink`, and pause the source while the sink's reader is slow."""
    await push_messages(call, sink.send, sink.wait_until_drained)


class _QueuedSink:
    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self._messages: deque[bytes] = deque()
        self._woken = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False

    def send(self, message: bytes) -> bool:
        self._messages.append(message)
        self._woken.set()
        if len(self._messages) >= QUEUE_MAX:
            self._room.clear()
        return self._room.is_set()

    async def wait_until_drained(self) -> None:
        await self._room.wait()

    def end(self) -> None:
        self._ended = True
        self._woken.set()

    async def write(self) -> None:
        while not (self._ended and not self._messages):
            await self._woken.wait()
            self._woken.clear()
            while self._messages:
                await self._context.write(self._messages.popleft())
            self._room.set()


class Watches:
    def __init__(self) -> None:
        self._open: dict[asyncio.Timeout, None] = {}
        self._is_over = False

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Run the block until it ends or the service stops; the latter ends it without an error."""
        ending = asyncio.timeout(0 if self._is_over else None)
        try:
            async with ending:
                self._open[ending] = None
                yield
        except TimeoutError:
            if not ending.expired():
                raise
        finally:
            self._open.pop(ending, None)

    def end_all(self) -> None:
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for ending in self._open:
            ending.reschedule(now)
