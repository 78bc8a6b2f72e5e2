"""Limits that end a model's work, but not its run: readers are told which, and what is known makes the answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from headrace.errors import BudgetExceeded
from services.orchestrator.run.scope import Scope

CALL_LIMITS = frozenset({"maxModelCalls", "maxToolCalls"})


class OutOfCalls(Exception):
    """Only the final answer may still be asked for."""


@contextmanager
def translating_call_limit() -> Generator[None]:
    try:
        yield
    except BudgetExceeded as error:
        if error.metadata.get("limit") not in CALL_LIMITS:
            raise
        raise OutOfCalls from error


async def tell_limit(scope: Scope, reason: str) -> None:
    """Tell readers which limit `reason`, steps or budget, stands for."""
    spending = scope.run.spending
    if reason == "steps":
        what = f"its {scope.settings.steps_max} turns with tools (maxSteps)"
    elif spending.is_out_of_calls:
        what = f"the run's {spending.model_calls_max} model calls (maxModelCalls)"
    else:
        what = f"the run's {spending.tool_calls_max} tool calls (maxToolCalls)"
    await scope.notice("LIMIT_REACHED", f"the model has used up {what}")
