"""PARALLEL: adjacent tasks of one group run together; then the planner may add tasks."""

from __future__ import annotations

from services.orchestrator.mode_api.plan import groups
from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner


async def run_parallel(work: PlanRunner) -> None:
    section = work.agent.plan_execute
    assert section is not None, "the mode has its section"
    for rounds_left in reversed(range(section.max_rounds + 1)):
        for group in groups(work.planned.plan.open()):
            await work.run_tasks(group, section.max_parallel)
            if work.is_cut:
                return
        if rounds_left == 0 or not await work.planner.ask_for_more_tasks():
            return
