"""An event loop whose clock jumps to its next timer whenever nothing else can happen, so that no test waits for time.

Everything else is real: sockets, threads, child processes. Real time passes while a thread works for the loop, while a
child process of the loop runs, and while a connection to another process is open. A step of the loop counts as at most
`STEP_S`, however long it waits for a core, so that a busy machine lets no timeout expire.
`services.runtime.clock` reads the same clock in a test, so that deadlines, leases and timestamps agree.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any
from weakref import WeakSet

from services.runtime.clock import CLOCK

SOCKET_LOOK_S = 0.001
"""How long the loop waits for sockets before it jumps. The kernel delivers within this time."""

STEP_S = 0.05
"""Longest time that passes between two looks of the loop at its sockets, unless it sleeps."""


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._mark = (time.monotonic(), time.monotonic())
        """What time it was at the last look, by this loop and by the machine. One value, since threads read it, too."""
        self._jobs: set[Future[Any]] = set()
        """Calls that still run in threads."""
        self._children: WeakSet[asyncio.SubprocessTransport] = WeakSet()
        self._pipes: WeakSet[asyncio.ReadTransport] = WeakSet()
        """Pipes that child processes, or processes they leave behind, may still write to."""
        self._links: WeakSet[asyncio.Transport] = WeakSet()
        """Connections whose other end is not known to be in this loop."""
        self._dials = 0
        """Connections that are being made."""
        super().__init__(_JumpingSelector(self))
        self._threads: ThreadPoolExecutor | None = None
        _clock.loop = self

    def time(self) -> float:
        now, looked_at = self._mark
        return now + min(time.monotonic() - looked_at, STEP_S)

    def end_step(self) -> None:
        self._mark = (self.time(), time.monotonic())

    def end_sleep(self, seconds: float) -> None:
        """Have this time pass since the last look, whether the machine has slept for it or not."""
        self._mark = (self._mark[0] + seconds, time.monotonic())

    def is_anything_outstanding(self) -> bool:
        """Whether a thread, a child process or a peer in another process may still do something."""
        if self._jobs or self._dials or any(child.get_returncode() is None for child in self._children):
            return True
        if any(not pipe.is_closing() for pipe in self._pipes):
            return True
        return bool(self._links) and self._has_foreign_peer()

    def _has_foreign_peer(self) -> bool:
        links = [link for link in self._links if not link.is_closing()]
        own = {link.get_extra_info("sockname") for link in links}
        peers = [link.get_extra_info("peername") for link in links]
        return any(peer and peer not in own for peer in peers)

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - asyncio takes no other
        super().set_default_executor(executor)
        self._threads = executor

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if executor is None:
            if self._threads is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
            executor = self._threads
            assert executor is not None
        job = executor.submit(copy_context().run, func, *args)
        self._jobs.add(job)
        outcome = asyncio.wrap_future(job, loop=self)
        job.add_done_callback(self._jobs.discard)  # after the loop has been woken
        return outcome

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads without the timeout of Python 3.12, which would pass in a jump."""
        await super().shutdown_default_executor()

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self._dials += 1
        try:
            return await super().create_connection(*args, **options)
        finally:
            self._dials -= 1

    def _make_socket_transport(self, *args: Any, **options: Any) -> Any:
        transport = super()._make_socket_transport(*args, **options)  # pyright: ignore
        self._links.add(transport)
        return transport

    def _make_read_pipe_transport(self, *args: Any, **options: Any) -> Any:
        transport = super()._make_read_pipe_transport(*args, **options)  # pyright: ignore
        self._pipes.add(transport)
        return transport

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        transport = await super()._make_subprocess_transport(*args, **options)  # pyright: ignore
        self._children.add(transport)
        return transport


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.end_step()
        sleep_s = timeout or 0.0
        if sleep_s <= 0 or self._loop.is_anything_outstanding():
            ready = super().select(timeout)
        else:
            has_sockets = len(self.get_map()) > 1  # one is the loop's own, to be woken by
            ready = super().select(SOCKET_LOOK_S if has_sockets else 0)
            sleep_s = 0.0 if self._loop.is_anything_outstanding() else sleep_s
        if ready or sleep_s <= 0:
            self._loop.end_step()
        else:
            self._loop.end_sleep(sleep_s)
        return ready


class _JumpedClock:
    """The clock of the running loop, or the machine's when none runs."""

    loop: JumpingLoop | None = None

    def __init__(self) -> None:
        self._started_at_ns = time.time_ns() - time.monotonic_ns()

    def time_ns(self) -> int:
        return self._started_at_ns + int(self.monotonic() * 1e9)

    def monotonic(self) -> float:
        return time.monotonic() if self.loop is None or self.loop.is_closed() else self.loop.time()

    def thread_time(self) -> float:
        return time.thread_time()


_clock = _JumpedClock()


def install_clock() -> None:
    """Have `services.runtime.clock` read the clock of the running loop, in this context and those made from it."""
    CLOCK.set(_clock)
