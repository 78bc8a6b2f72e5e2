"""Stops a run's work: for a cancel, its time, its process or another owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2
from services.orchestrator.run.control.state import RunState
from services.orchestrator.tape.tape import Tape

SETTLING_S = 0.05
"""Siblings become live within this time, having only recorded lines to go through."""


class Stopped(Exception):
    """The run was cancelled with mode after_step."""


class StopControl:
    __slots__ = ("_condition", "_settling", "_state", "error", "is_given_up", "is_live", "mode", "tape", "work")

    def __init__(self, state: RunState, *, is_live: bool) -> None:
        self._state = state
        self.mode: Literal["", "now", "after_step"] = ""
        self.error: HeadraceError | None = None
        self.is_given_up = False
        self.is_live = is_live
        """Whether the run is past what earlier owners did."""
        self.work: asyncio.Task[str] | None = None
        self.tape: Tape | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._condition: Callable[[], bool] = lambda: False

    def begin_work(self, work: asyncio.Task[str]) -> None:
        self.work = work

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        if self.tape is not None:
            self.tape.note_received("AgentService/Cancel", agent_pb2.CancelRequest(mode=mode))
        if self.mode != "now":
            self.mode = mode
        if mode == "now" and self.is_live:
            self._end_work()

    def cancel_when(self, condition: Callable[[], bool]) -> None:
        """Cancel the work once it is past what earlier owners did and the condition holds, as `review` finds."""
        self._condition = condition
        self.review()

    def review(self) -> None:
        if self.is_live and self.mode != "now" and self._condition():
            self.cancel()

    def go_live(self) -> None:
        """Let cancels take effect soon; during the replay they would leave calls without results."""
        if not self.is_live and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLING_S, self._settle)

    def _settle(self) -> None:
        self.is_live = True
        if self.mode == "now":
            self._end_work()
        self.review()

    def interrupt(self, error: HeadraceError) -> None:
        self.error = error
        self._end_work()

    def expire(self, error: HeadraceError) -> None:
        self.error = self.error or error
        self._end_work()

    def give_up(self) -> None:
        self.is_given_up = True
        self._end_work()

    @property
    def is_stopping(self) -> bool:
        return bool(self.mode) and self.is_live

    @property
    def must_end(self) -> bool:
        return (self.mode == "now" and self.is_live) or self.error is not None or self.is_given_up

    def check(self) -> None:
        if self.is_stopping:
            raise Stopped

    def _end_work(self) -> None:
        self._state.give_turn()
        if self.work is not None:
            self.work.cancel()
