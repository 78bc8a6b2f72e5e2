from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class DaemonThread(Executor):
    """A thread for calls that may block for good, one after the other; a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._is_started = False

    async def call(self, function: Callable[[], T]) -> T:
        """Return or raise what `function` does, in the caller's context; a caller that leaves does not end it."""
        return await asyncio.get_running_loop().run_in_executor(self, partial(copy_context().run, function))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; the first starts the thread. Only one thread may submit."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run_calls, name=self._name, daemon=True).start()
        future: Future[T] = Future()
        self._calls.put((partial(fn, *args, **kwargs), future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread as `close` does, whatever is asked for: nobody waits for it, and no call is dropped."""
        self.close()

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
