"""The state of a run: queued, running, waiting for people, or ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from services.orchestrator.run.single_waiter_event import SingleWaiterEvent

End: TypeAlias = Literal["completed", "cancelled", "failed"]
State: TypeAlias = Literal["queued", "running", "waiting"] | End


class RunState:
    """Goes from queued to running, between running and waiting, and to one end."""

    __slots__ = ("_begun", "_on_rest", "_turn", "created_at", "is_stored", "name")

    def __init__(self, created_at: int, *, is_stored: bool, on_rest: Callable[[bool], None]) -> None:
        """`on_rest` is called when the run begins to wait for people alone, and when it goes on."""
        self.name: State = "queued"
        self.created_at = created_at
        """When its query came, in Unix milliseconds."""
        self.is_stored = is_stored
        """Whether the log has its query, and the run is ours."""
        self._begun = SingleWaiterEvent()
        """Set when readers have the run's first events."""
        self._turn = SingleWaiterEvent()
        """Set when no earlier run of the chat is live, or the run is to end."""
        self._on_rest = on_rest

    def store(self) -> None:
        """The log has the query."""
        self.is_stored = True

    def give_turn(self) -> None:
        """Let the run go on that waits for its chat's earlier ones."""
        self._turn.set()

    async def wait_for_turn(self) -> None:
        """Return when it is the run's turn in its chat."""
        await self._turn.wait()

    def start(self) -> None:
        """Readers have the run's first events: its work may show."""
        self.name = "running"
        self._begun.set()

    async def wait_for_start(self) -> None:
        """Return when the run has started. Work that is ahead of that asks only, and no model (docs/decisions/0012)."""
        await self._begun.wait()

    def wait(self) -> None:
        """Nothing of the run works; repeated for each further part of it that waits for a person."""
        if self.name != "waiting":
            self._on_rest(True)
        self.name = "waiting"

    def resume(self) -> None:
        """No part of the run waits for a person any more."""
        self.name = "running"
        self._on_rest(False)

    def end(self, name: End) -> None:
        self.name = name
