"""Simulated processes, each with its own context, clock, randomness and network; a dead process does nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from services.runtime.clock import CLOCK
from services.runtime.ending import EXIT
from services.runtime.randomness import RANDOM

EPOCH_S = 1_767_225_600
"""1 January 2026, when every simulation begins."""

CPU_SHARE = 0.01
"""Share of the time that a thread is assumed to compute."""

PROCESS: ContextVar[Process] = ContextVar("PROCESS")


def find_process(context: Context) -> Process | None:
    return context.get(PROCESS)


class Exited(BaseException):
    """A process has ended itself, and runs no further."""


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    loop: asyncio.AbstractEventLoop
    skew_s: float = 0.0
    """Lead of this machine's clock when the world begins."""
    drift: float = 0.0
    """Seconds that the clock gains per second."""

    def time_ns(self) -> int:
        return self.tell_ns(self.loop.time())

    def tell_ns(self, at_s: float) -> int:
        """Return the clock's reading when the world has run for `at_s`."""
        return round((EPOCH_S + self.skew_s + at_s * (1 + self.drift)) * 1e9)

    def monotonic(self) -> float:
        return self.loop.time()

    def thread_time(self) -> float:
        return self.loop.time() * CPU_SHARE


@dataclass(slots=True, eq=False)
class Process:
    name: str
    number: int
    """Number of this start among those of the same name."""
    on_death: Callable[[Process], None]
    on_finish: Callable[[Process], None]
    """Called when the main task has ended normally."""
    is_dead: bool = False
    exit_code: int | None = None
    """Exit code of a process that has ended itself."""
    turns: int = 0
    """Callbacks run so far."""
    turns_left: int | None = None
    """Callbacks until the process is killed; None: it is not killed."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])
    """All tasks that have ever run; those of a dead process must not be collected, or their `finally` blocks
    would run.
    """
    task: asyncio.Task[Any] | None = None
    is_serving: bool = False
    is_stopping: bool = False
    """Whether the process was asked to stop."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is dead."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def __hash__(self) -> int:
        return hash((self.name, self.number))

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        main: Callable[[], Coroutine[Any, Any, None]],
        seed: str,
        clock: SimulatedClock,
        prepare: Callable[[], object],
    ) -> None:
        """Run `main` in a new context, after a call of `prepare` in it."""
        context = Context()

        def begin() -> None:
            PROCESS.set(self)
            CLOCK.set(clock)
            RANDOM.set(Random(f"{seed}/{self.name}/{self.number}"))
            EXIT.set(self.exit)
            prepare()

        context.run(begin)
        self.task = context.run(loop.create_task, main())
        self.task.add_done_callback(self._on_end, context=Context())

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self.is_dead:
            return
        if not task.cancelled() and task.exception() is not None:
            self.exit_code = 1
            self.kill()
        else:
            self.on_finish(self)

    async def wait_for_stop(self) -> None:
        """Return when the process is asked to stop, as a service's main function waits for a signal."""
        self.is_serving = True
        await self._stop.wait()

    def stop(self) -> None:
        """Ask the process to stop, as SIGTERM does."""
        if self.is_dead or self.is_stopping:
            return
        self.is_stopping = True
        if self.is_serving:
            self._stop.set()
        elif self.task is not None:
            self.task.cancel()

    def takes_turn(self) -> bool:
        """Count a callback that is about to run; False if the process is dead, or is killed now."""
        if self.is_dead:
            return False
        self.turns += 1
        if self.turns_left is not None:
            self.turns_left -= 1
            if self.turns_left <= 0:
                self.kill()
                return False
        return True

    def kill(self) -> None:
        """End the process as SIGKILL does: without notice or cleanup."""
        if self.is_dead:
            return
        self.bury()
        self.on_death(self)

    def bury(self) -> None:
        """Stop the process for good, and suppress messages when its tasks are collected."""
        self.is_dead = True
        self.ended.set()
        for task in self.tasks:
            task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - it stays pending

    def exit(self, code: int) -> NoReturn:
        self.exit_code = code
        self.kill()
        raise Exited(f"{self.name} ended with {code}")
