"""An event loop whose clock jumps to its next timer whenever nothing else can happen, so that no test waits for time.

Everything else is real: sockets, threads, child processes. Real time passes while a thread works for the loop, while a
child process of it runs, and while a connection to another process is open. `services.runtime.clock` reads the same
clock in a test, so that deadlines, leases and timestamps agree.
"""

from __future__ import annotations

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


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumped_s = 0.0
        self._jobs: set[Future[Any]] = set()
        """Calls that threads have not ended."""
        self._children: WeakSet[asyncio.SubprocessTransport] = WeakSet()
        self._pipes: WeakSet[asyncio.ReadTransport] = WeakSet()
        """What children, and those that they leave behind, may still write into."""
        self._links: WeakSet[asyncio.Transport] = WeakSet()
        """Connections whose other end is not known to be in this loop."""
        self._dials = 0
        """Connections that are being made."""
        super().__init__(_JumpingSelector(self))
        self._threads: ThreadPoolExecutor | None = None
        _clock.loop = self

    def time(self) -> float:
        return super().time() + self._jumped_s

    @property
    def jumped_s(self) -> float:
        return self._jumped_s

    def jump(self, seconds: float) -> None:
        self._jumped_s += seconds

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
        if timeout is None or timeout <= 0 or self._loop.is_anything_outstanding():
            return super().select(timeout)
        has_sockets = len(self.get_map()) > 1  # one is the loop's own, to be woken by
        ready = super().select(SOCKET_LOOK_S if has_sockets else 0)
        if not ready and not self._loop.is_anything_outstanding():
            self._loop.jump(timeout)
        return ready


class _JumpedClock:
    """The machine's clocks, and as much later as the running loop has jumped."""

    loop: JumpingLoop | None = None

    def time_ns(self) -> int:
        return time.time_ns() + int(self._jumped_s() * 1e9)

    def monotonic(self) -> float:
        return time.monotonic() + self._jumped_s()

    def thread_time(self) -> float:
        return time.thread_time()

    def _jumped_s(self) -> float:
        return self.loop.jumped_s if self.loop is not None and not self.loop.is_closed() else 0.0


_clock = _JumpedClock()


def install_clock() -> None:
    """Have `services.runtime.clock` read the clock of the running loop, in this context and those made from it."""
    CLOCK.set(_clock)
