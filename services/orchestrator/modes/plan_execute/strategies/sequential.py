"""SEQUENTIAL: one task after the other, until one fails."""

from __future__ import annotations

from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner


async def run_sequential(work: PlanRunner) -> None:
    for task in work.planned.plan.open():
        await work.run_task(task)
        if work.is_cut or task.status == "failed":
            return
