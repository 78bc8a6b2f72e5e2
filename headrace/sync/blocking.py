"""Runs the asynchronous client without an event loop: calls block instead of awaiting.

A `BlockingChannel` has the methods of grpc.aio.Channel that the client uses. With it, a single step runs a
coroutine to its end, without a loop or another thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

import grpc

from headrace import run_stream
from headrace.runs.fold import Fold
from headrace.v1 import agent_pb2

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def complete(coroutine: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a call of the synchronous client waited for an event loop")


class BlockingIterator(Iterator[Item]):
    def __init__(self, items: AsyncIterator[Item]) -> None:
        self._next = items.__anext__

    def __next__(self) -> Item:
        try:
            return complete(self._next())  # pyright: ignore[reportArgumentType] - an awaitable that has `send`
        except StopAsyncIteration:
            raise StopIteration from None


class RunStream(BlockingIterator[agent_pb2.AgentDelta]):
    """Iterates the events of a run; `state` is the run's state so far."""

    def __init__(self, stream: run_stream.RunStream) -> None:
        super().__init__(stream)
        self._stream = stream

    @property
    def state(self) -> Fold:
        return self._stream.state

    def text(self) -> Iterator[str]:
        """Yield the run's own text as it arrives, each piece once, with a blank line between blocks.

        This includes text before tool calls, so the whole may be longer than `state.answer`.
        """
        return BlockingIterator(self._stream.text())


class ChatStream(BlockingIterator[agent_pb2.FollowDelta]):
    """Iterates the events of a chat's runs, each with its run id and cursor; `cursor` is the place to resume from."""

    def __init__(self, stream: run_stream.ChatStream) -> None:
        super().__init__(stream)
        self._stream = stream

    @property
    def cursor(self) -> str:
        return self._stream.cursor


class BlockingContext(AbstractContextManager[Any]):
    """Context manager of a stream."""

    def __init__(self, block: AbstractAsyncContextManager[Any]) -> None:
        self._block = block

    def __enter__(self) -> Any:
        match complete(self._block.__aenter__()):  # pyright: ignore[reportArgumentType] - an awaitable that has `send`
            case run_stream.RunStream() as stream:
                return RunStream(stream)
            case run_stream.ChatStream() as stream:
                return ChatStream(stream)
            case items:
                return BlockingIterator(items)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return complete(self._block.__aexit__(kind, error, traceback))  # pyright: ignore[reportArgumentType] - the same


class BlockingChannel:
    """A blocking channel with the interface of grpc.aio."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary_unary(self, path: str, **serializers: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        return self._make_unary(self._channel.unary_unary(path, **serializers))

    def stream_unary(self, path: str, **serializers: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        return self._make_unary(self._channel.stream_unary(path, **serializers))

    def unary_stream(self, path: str, **serializers: Any) -> Callable[..., _BlockingCall]:
        rpc: Any = self._channel.unary_stream(path, **serializers)

        def call(request: Any, **options: Any) -> _BlockingCall:
            return _BlockingCall(rpc(request, **options))

        return call

    @staticmethod
    def _make_unary(rpc: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(request: Any, **options: Any) -> Any:
            return rpc(request, **options)

        return call

    async def close(self) -> None:
        self._channel.close()


class _BlockingCall:
    """A stream of answers."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.cancel: Callable[[], object] = call.cancel

    def __aiter__(self) -> _BlockingCall:
        return self

    async def __anext__(self) -> Any:
        for reply in self._call:
            return reply
        raise StopAsyncIteration
