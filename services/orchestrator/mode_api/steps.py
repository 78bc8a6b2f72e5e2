"""The steps of a run whose agent has a mode of its own: how many there may be, and what they are held against."""

from __future__ import annotations

from headrace.errors import BudgetExceeded
from services.orchestrator.run.replay.fit import Fit
from services.orchestrator.run.scope import Scope

STEPS_LIMIT = "customMaxSteps"
"""What errors call the limit."""


class StepCount:
    """Counts the steps of all scopes of one run."""

    def __init__(self, steps_max: int) -> None:
        self._steps_max = steps_max
        self._taken = 0

    def take(self) -> None:
        """Count one more. Raises BudgetExceeded when there have been as many as the agent allows."""
        if self._taken >= self._steps_max:
            message = f"the mode has taken its {self._steps_max} steps (custom.maxSteps)"
            raise BudgetExceeded(message, limit=STEPS_LIMIT, steps=self._taken)
        self._taken += 1


def make_fit(scope: Scope) -> Fit:
    ids, run = scope.ids, scope.run
    where = f"task {ids.task_id}" if ids.task_id else f"sub-agent {ids.subagent_id}" if ids.subagent_id else "the run"

    def list_unopened() -> list[str]:
        return [name for name in run.recording.list_tasks(scope.context_id) if not run.scopes.had(name)]

    return Fit(scope.recording, where, list_unopened)
