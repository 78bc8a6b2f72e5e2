"""SEQUENTIAL: one task after the other; when one fails, the rest is not done."""

from __future__ import annotations

from services.orchestrator.modes.plan_execute.plan_runner import Work


async def sequential(work: Work) -> None:
    """Do the plan's tasks in order."""
    for task in work.planned.plan.open():
        await work.do(task)
        if work.is_cut or task.status == "failed":
            return
