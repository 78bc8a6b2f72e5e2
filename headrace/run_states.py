"""The states of a run, as written in `Run.state` and `RunLine.state`."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """The run can continue only after a person's answer."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


LIVE_STATES = (State.QUEUED, State.RUNNING, State.WAITING)

STATES_BY_EVENT = {
    "run_complete": State.COMPLETED,
    "run_cancel": State.CANCELLED,
    "run_error": State.FAILED,
}
"""Final state of a run by the field of its terminal event."""
