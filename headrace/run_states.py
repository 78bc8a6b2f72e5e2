"""The states of a run, as the contract writes them: `Run.state` and `RunLine.state`."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """Its work waits for people alone."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


LIVE_STATES = (State.QUEUED, State.RUNNING, State.WAITING)

STATES_BY_EVENT = {
    "run_complete": State.COMPLETED,
    "run_cancel": State.CANCELLED,
    "run_error": State.FAILED,
}
"""The state in which each terminal event, named by its field, leaves the run."""
