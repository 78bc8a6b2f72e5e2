"""An event loop without sockets, threads and waiting: when no callback is ready, its clock jumps to the next
timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import socket
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any

from trials.simulation.world.processes import PROCESS, find_process

HOP_S = (0.000_02, 0.000_5)
"""Delay before a thread starts, and before its result is noticed."""

TIMERS_MIN = 100
"""Number of timers above which cancelled ones are removed together."""

WORKERS_MAX = 8
"""Threads of the default executor."""


class Stuck(Exception):
    """No callback or timer is left, and the work is not done."""


class NumberedFuture(asyncio.Future[Any]):
    # Sets of futures must not be iterated in an order that depends on memory addresses.
    __slots__ = ("number",)

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    def __init__(self, coro: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class SlimHandle(asyncio.TimerHandle):
    """A callback with or without a time: asyncio's handle, without the parts that only the debug mode needs."""

    __slots__ = ()
    _callback: Any
    _args: Any
    _loop: SimulatedLoop

    def __init__(self, when: float, callback: Any, args: Any, loop: SimulatedLoop, context: Context | None) -> None:
        self._when, self._callback, self._args, self._loop = when, callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop.count_cancelled()
            self._callback = self._args = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs the callbacks of all simulated processes except dead ones; time passes only between callbacks."""

    _ready: Any
    _stopping: bool
    _closed: bool
    _timer_cancelled_count: int

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now_s = 0.0
        self._timers: list[tuple[float, int, Any]] = []
        """A heap of handles with their times; handles with the same time run in the order of their creation."""
        self._numbers = itertools.count(1)
        self._lanes: dict[Any, list[float]] = {}
        """Time at which each thread of an executor is free again."""
        self.dial: Callable[[Callable[[], asyncio.Protocol], str], Coroutine[Any, Any, tuple[Any, Any]]] | None = None
        """Connects to an outside host; None: there is none."""
        self.serve: Callable[..., Any] | None = None
        """Listens at a host for the running process; None: listening is impossible."""
        self.turns = 0
        """Callbacks run so far."""
        self.thread_delay_s: Callable[[], float] = lambda: self._random.uniform(*HOP_S)
        self.set_task_factory(self._make_task)  # pyright: ignore[reportArgumentType] - it takes a context, too

    def time(self) -> float:
        return self._now_s

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle: Any = SlimHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        handle._scheduled = True  # so that its cancellation is counted
        return handle

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("the world has ended")
        handle = SlimHandle(0.0, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self._now_s + delay  # as call_at, which is called as often
        handle: Any = SlimHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        handle._scheduled = True
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        future = NumberedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = NumberedTask(coro, next(self._numbers), loop=loop, context=context)
        if (process := find_process(context or copy_context())) is not None:
            process.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `func` in one step at a later time, as a thread of the executor would."""
        future = self.create_future()
        began_s = max(self._now_s, self._take_lane(executor)) + self.thread_delay_s()
        self._give_lane(executor, began_s)

        def answer(outcome: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(outcome) if error is None else future.set_exception(error)

        def run() -> None:
            if future.cancelled():
                return
            try:
                outcome, error = func(*args), None
            except Exception as failure:
                outcome, error = None, failure
            self.call_later(self._random.uniform(*HOP_S), answer, outcome, error)

        self.call_at(began_s, run)
        return future

    def _take_lane(self, executor: Any) -> float:
        owner = executor or find_process(copy_context())
        count = WORKERS_MAX if executor is None else getattr(executor, "_max_workers", 1)
        lanes = self._lanes.setdefault(owner, [0.0] * count)
        return heapq.heappop(lanes)

    def _give_lane(self, executor: Any, until_s: float) -> None:
        heapq.heappush(self._lanes[executor or find_process(copy_context())], until_s)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Resolve a host to its own name."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if self.dial is None:
            raise ConnectionRefusedError(f"no server listens at {host}")
        return await self.dial(protocol_factory, host)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if self.serve is None:
            raise OSError(f"listening is not possible at {host}")
        return self.serve(protocol_factory, host, port)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _run_once(self) -> None:
        """Run callbacks until the loop is stopped."""
        timers, ready, drop_first = self._timers, self._ready, heapq.heappop
        while True:
            if len(timers) > TIMERS_MIN and self._timer_cancelled_count * 2 > len(timers):
                self._drop_cancelled()
            while timers and timers[0][2]._cancelled:
                drop_first(timers)[2]._scheduled = False
                self._timer_cancelled_count -= 1
            if not ready and not self._stopping:
                if not timers:
                    raise Stuck("nothing is left that could happen")
                self._now_s = max(self._now_s, timers[0][0])
            while timers and timers[0][0] <= self._now_s:
                handle = drop_first(timers)[2]
                handle._scheduled = False
                self._timer_cancelled_count -= handle._cancelled
                ready.append(handle)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle._context.get(PROCESS)
                if process is None or process.takes_turn():
                    self.turns += 1
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler({"message": "a callback failed", "exception": error})
            if self._stopping:
                return

    def count_cancelled(self) -> None:
        self._timer_cancelled_count += 1

    def _drop_cancelled(self) -> None:
        kept: list[tuple[float, int, Any]] = []
        for timer in self._timers:
            if timer[2]._cancelled:
                timer[2]._scheduled = False
            else:
                kept.append(timer)
        heapq.heapify(kept)
        self._timers[:] = kept
        self._timer_cancelled_count = 0
