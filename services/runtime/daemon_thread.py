from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThread:
    """A thread for calls that may block for good, one after the other; a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run_calls, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        """Return or raise what `function` does, in the caller's context; a caller that leaves does not end it."""
        future: Future[T] = Future()
        self._calls.put((partial(copy_context().run, function), future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread after the calls that it has."""
        self._calls.put(None)

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
