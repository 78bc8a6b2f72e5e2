"""Simulated processes: a context of its own, with clock, randomness and network; what is dead does nothing any more."""

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
"""Share of the time for which a thread is said to compute."""

PROCESS: ContextVar[Process] = ContextVar("PROCESS")


def find_process(context: Context) -> Process | None:
    return context.get(PROCESS)


class Exited(BaseException):
    """A process has ended itself; nothing of it goes on."""


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    loop: asyncio.AbstractEventLoop
    skew_s: float = 0.0
    """How far this machine's clock is ahead when the world begins."""
    drift: float = 0.0
    """Seconds by which it goes ahead in one."""

    def time_ns(self) -> int:
        return self.tell_ns(self.loop.time())

    def tell_ns(self, at_s: float) -> int:
        """Return what it shows when the world has gone on for so long."""
        return round((EPOCH_S + self.skew_s + at_s * (1 + self.drift)) * 1e9)

    def monotonic(self) -> float:
        return self.loop.time()

    def thread_time(self) -> float:
        return self.loop.time() * CPU_SHARE


@dataclass(slots=True, eq=False)
class Process:
    name: str
    number: int
    """Counts the starts of this name."""
    on_death: Callable[[Process], None]
    on_finish: Callable[[Process], None]
    """Called when its main task has ended as it should."""
    is_dead: bool = False
    exit_code: int | None = None
    """What it ended itself with."""
    turns: int = 0
    """Callbacks run so far."""
    turns_left: int | None = None
    """Callbacks until it is killed; None: it is not to be."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])
    """All that ever ran; a dead process's must not be collected, or their `finally` blocks would run."""
    task: asyncio.Task[Any] | None = None
    is_serving: bool = False
    is_stopping: bool = False
    """Whether it was told to stop."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is dead."""
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
        """Run `main` in a new context, in which `prepare` is called first."""
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
        """Return when the process is told to stop, as a service's main function waits for a signal."""
        self.is_serving = True
        await self._stop.wait()

    def stop(self) -> None:
        """Tell it to stop, as SIGTERM does."""
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
        """End it as SIGKILL does: nothing of it is told, nothing cleans up."""
        if self.is_dead:
            return
        self.bury()
        self.on_death(self)

    def bury(self) -> None:
        """Let nothing of it go on, nor say anything when it is collected."""
        self.is_dead = True
        self.ended.set()
        for task in self.tasks:
            task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - it stays pending

    def exit(self, code: int) -> NoReturn:
        self.exit_code = code
        self.kill()
        raise Exited(f"{self.name} ended with {code}")
