"""Stops a run's work: a cancel, its time, its process, another owner."""

from __future__ import annotations

import asyncio
from typing import Literal

from headrace.errors import HeadraceError
from services.orchestrator.run.control.state import RunState

SETTLING_S = 0.05
"""Time in which the siblings of a scope that goes live go live too: each has but recorded lines to go through."""


class Stopped(Exception):
    """The run ends here because somebody asked for it (cancel with mode after_step)."""


class StopControl:
    """Ends the work of one run, which is a task, from outside."""

    __slots__ = ("_settling", "_state", "error", "is_given_up", "is_live", "mode", "work")

    def __init__(self, state: RunState, *, is_live: bool) -> None:
        self._state = state
        self.mode: Literal["", "now", "after_step"] = ""
        """How a caller has cancelled the run; empty: nobody has."""
        self.error: HeadraceError | None = None
        """Why the run was stopped, when it was not a caller's wish."""
        self.is_given_up = False
        """Whether it is left to its next owner."""
        self.is_live = is_live
        """Whether the run does what no earlier owner has done."""
        self.work: asyncio.Task[str] | None = None
        self._settling: asyncio.TimerHandle | None = None

    def begin_work(self, work: asyncio.Task[str]) -> None:
        """Take the task that is cancelled when the run is to end."""
        self.work = work

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        """Ask the run to end with run.cancel. Returns at once; repeating it is harmless."""
        if self.mode != "now":
            self.mode = mode
        if mode == "now" and self.is_live:
            self._end_work()

    def go_live(self) -> None:
        """Note that the recording is used up somewhere: what was open is open again in a moment, and the run may be
        cancelled then. A cancel before that would leave calls without results and tasks without an end.
        """
        if not self.is_live and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLING_S, self._settle)

    def _settle(self) -> None:
        self.is_live = True
        if self.mode == "now":
            self._end_work()

    def interrupt(self, error: HeadraceError) -> None:
        """End the work; the run ends with run.error."""
        self.error = error
        self._end_work()

    def expire(self, error: HeadraceError) -> None:
        """End the work because the run's time is used up; an interruption before that stays the reason."""
        self.error = self.error or error
        self._end_work()

    def give_up(self) -> None:
        """Leave the run to its next owner: nothing is said of how it ends."""
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
        """Raise Stopped between steps, when an after_step cancel is waiting."""
        if self.is_stopping:
            raise Stopped

    def _end_work(self) -> None:
        self._state.give_turn()
        if self.work is not None:
            self.work.cancel()
