"""Parked runs that readers of this process follow: their leases are kept, so that they go on where the readers are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.orchestrator.lifecycle.start_result import stopping
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms


@dataclass(eq=False, slots=True)
class HeldRun:
    id: str
    identity: Identity
    generation: int
    due_at: int
    """Unix milliseconds."""
    held_at: int = field(default_factory=now_ms)
    readers: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class HeldRuns:
    def __init__(self) -> None:
        self._by_id: dict[str, HeldRun] = {}
        self._is_closed = False

    def hold(self, run: Run, due_at: int) -> None:
        self._by_id[run.id] = HeldRun(run.id, run.identity, run.log.generation, due_at)

    def has(self, run_id: str) -> bool:
        return run_id in self._by_id

    def all(self) -> list[HeldRun]:
        return list(self._by_id.values())

    async def wait(self, run_id: str) -> None:
        """Return when the run goes on somewhere, or has ended. Raises Overloaded when the process stops."""
        if (held := self._by_id.get(run_id)) is not None:
            held.readers += 1
            try:
                await held.woken.wait()
            finally:
                held.readers -= 1
        if self._is_closed:
            raise stopping()

    def let_go(self, held: HeldRun) -> None:
        """Forget the run, and wake its readers; what has been held anew since stays."""
        if self._by_id.get(held.id) is held:
            self.wake(held.id)

    def wake(self, run_id: str) -> None:
        if (held := self._by_id.pop(run_id, None)) is not None:
            held.woken.set()

    def close(self) -> None:
        self._is_closed = True
        for held in self.all():
            held.woken.set()
