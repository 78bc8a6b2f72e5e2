"""The state of a run: queued, running, waiting for people, or ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from services.orchestrator.run.single_waiter_event import SingleWaiterEvent

End: TypeAlias = Literal["completed", "cancelled", "failed"]
State: TypeAlias = Literal["queued", "running", "waiting"] | End


class RunState:
    __slots__ = ("_begun", "_on_rest", "_turn", "created_at", "is_stored", "name")

    def __init__(self, created_at: int, *, is_stored: bool, on_rest: Callable[[bool], None]) -> None:
        """Call `on_rest` with True when the run waits for people alone."""
        self.name: State = "queued"
        self.created_at = created_at
        """Unix milliseconds."""
        self.is_stored = is_stored
        self._begun = SingleWaiterEvent()
        self._turn = SingleWaiterEvent()
        """Set when no earlier run of the chat is live, or the run is to end."""
        self._on_rest = on_rest

    def store(self) -> None:
        self.is_stored = True

    def give_turn(self) -> None:
        self._turn.set()

    async def wait_for_turn(self) -> None:
        await self._turn.wait()

    def start(self) -> None:
        self.name = "running"
        self._begun.set()

    async def wait_for_start(self) -> None:
        """Wait until the run may ask a model: work ahead of its start must not (docs/decisions/0012)."""
        await self._begun.wait()

    def wait(self) -> None:
        if self.name != "waiting":
            self._on_rest(True)
        self.name = "waiting"

    def resume(self) -> None:
        self.name = "running"
        self._on_rest(False)

    def end(self, name: End) -> None:
        self.name = name
