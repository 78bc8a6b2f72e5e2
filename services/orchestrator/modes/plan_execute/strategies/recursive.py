"""RECURSIVE: the first task runs; a composite one is split into a list one level down.

After each task the planner, never a rule, restates the rest (ReCAP, arXiv 2510.23822).
"""

from __future__ import annotations

from services.orchestrator.mode_api.limits import OutOfCalls
from services.orchestrator.mode_api.plan import Level, Task
from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner
from services.orchestrator.modes.plan_execute.task import TaskReport


async def run_recursive(work: PlanRunner) -> None:
    await _run_level(work, Level(None, work.planned.plan.open(), work.thought), depth=0)


async def _run_level(work: PlanRunner, level: Level, depth: int) -> str:
    """Return the last task's status; `depth` is 0 for the plan's own list."""
    status = "completed"
    while level.remaining and not work.is_cut:
        head = level.remaining.pop(0)
        may_split = head.composite and depth < work.agent.depth_max
        report = await (_run_split(work, head, depth) if may_split else work.execute_task(await work.begin_task(head)))
        await work.report_to_planner(report)
        status = head.status
        if not work.is_cut:
            await work.planner.restate_level(level, report)
    return status


async def _run_split(work: PlanRunner, task: Task, depth: int) -> TaskReport:
    """Run a composite task by its parts, or as a whole if it gets none."""
    executor = await work.begin_task(task)
    try:
        level = await work.planner.split_task(task)
        if not level.remaining:
            return await work.execute_task(executor)
        status = await _run_level(work, level, depth + 1)
    except OutOfCalls:
        return await work.cut_task(executor)
    if work.is_cut:
        return await executor.cancel()
    await work.planned.mark(task, status)
    return await executor.end(text=level.thought)
