"""A cancel, its time, its process or another owner stops a run's work."""

from __future__ import annotations

import asyncio
from typing import Literal

from headrace.errors import HeadraceError
from services.orchestrator.run.control.state import RunState

SETTLING_S = 0.05
"""Siblings go live in this time: each has but recorded lines to go through."""


class Stopped(Exception):
    """Somebody cancelled the run with mode after_step."""


class StopControl:
    __slots__ = ("_settling", "_state", "error", "is_given_up", "is_live", "mode", "work")

    def __init__(self, state: RunState, *, is_live: bool) -> None:
        self._state = state
        self.mode: Literal["", "now", "after_step"] = ""
        """Empty when nobody has cancelled."""
        self.error: HeadraceError | None = None
        """None unless the run ends with run.error."""
        self.is_given_up = False
        """Whether the next owner has it."""
        self.is_live = is_live
        """Whether the run does what no earlier owner has done."""
        self.work: asyncio.Task[str] | None = None
        self._settling: asyncio.TimerHandle | None = None

    def begin_work(self, work: asyncio.Task[str]) -> None:
        self.work = work

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        """Repeating it is harmless."""
        if self.mode != "now":
            self.mode = mode
        if mode == "now" and self.is_live:
            self._end_work()

    def go_live(self) -> None:
        """Let the run be cancelled soon; a cancel in mid-replay would leave calls without results."""
        if not self.is_live and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLING_S, self._settle)

    def _settle(self) -> None:
        self.is_live = True
        if self.mode == "now":
            self._end_work()

    def interrupt(self, error: HeadraceError) -> None:
        """End the run with run.error."""
        self.error = error
        self._end_work()

    def expire(self, error: HeadraceError) -> None:
        """End the work; an interruption before that stays the reason."""
        self.error = self.error or error
        self._end_work()

    def give_up(self) -> None:
        """Leave the run to its next owner."""
        self.is_given_up = True
        self._end_work()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is to begin."""
        return bool(self.mode) and self.is_live

    @property
    def must_end(self) -> bool:
        """Whether the work is to be cancelled at once."""
        return (self.mode == "now" and self.is_live) or self.error is not None or self.is_given_up

    def check(self) -> None:
        """Raise Stopped when an after_step cancel is waiting."""
        if self.is_stopping:
            raise Stopped

    def _end_work(self) -> None:
        self._state.give_turn()
        if self.work is not None:
            self.work.cancel()
