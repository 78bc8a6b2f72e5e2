"""Runs tasks for a strategy and reports each to the planner's scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import BudgetExceeded, HeadraceError, to_failure
from services.orchestrator.agents import prompts
from services.orchestrator.mode_api.limits import OutOfCalls
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import ActivePlan, Task
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.task import RecordedTaskFailure, TaskExecutor, TaskReport


@dataclass(frozen=True, slots=True)
class _TaskResult:
    report: TaskReport | None = None

    error: HeadraceError | None = None


class PlanRunner:
    def __init__(self, mode: ModeRun, planned: ActivePlan, planner: Planner) -> None:
        self.agent = mode.agent
        self.planned = planned
        self.planner = planner
        self.is_cut = False
        self.thought = ""
        self._mode = mode

    async def begin_task(self, task: Task) -> TaskExecutor:
        executor = TaskExecutor(self._mode, self.planned, task)
        await executor.begin()
        return executor

    async def execute_task(self, executor: TaskExecutor) -> TaskReport:
        try:
            await executor.work()
        except OutOfCalls:
            return await self.cut_task(executor)
        except RecordedTaskFailure as broken:
            return await executor.end(broken.failure)
        return await executor.end()

    async def cut_task(self, executor: TaskExecutor) -> TaskReport:
        self.is_cut = True
        return await executor.cancel()

    async def run_task(self, task: Task) -> None:
        await self.report_to_planner(await self.execute_task(await self.begin_task(task)))

    async def report_to_planner(self, report: TaskReport) -> None:
        """Add the report to the planner's scope, which later tasks begin with."""
        text = prompts.fill_placeholders(prompts.load_text("task_report"), report.values)
        self._mode.log_steps_as("execute")
        await self._mode.add_message(text)
        self._mode.add_results(report.results)
        self.planned.history.append(text)

    async def run_tasks(self, tasks: Sequence[Task], at_once: int) -> None:
        """Run tasks together and report them in order.

        Raises:
            HeadraceError: The first task's error, when no task's model could be asked.
            Stopped: The run is cancelled after this step.
        """
        ends = await self._mode.run_together([self._run_in_group(task) for task in tasks], at_once=at_once)
        for end in ends:
            if end.report is not None:
                await self.report_to_planner(end.report)
        errors = [end.error for end in ends if end.error is not None]
        if len(errors) == len(tasks):
            raise errors[0]

    async def _run_in_group(self, task: Task) -> _TaskResult:
        if self.is_cut or self._mode.is_stopping:
            return _TaskResult()
        executor = await self.begin_task(task)
        try:
            return _TaskResult(await self.execute_task(executor))
        except BudgetExceeded:
            raise
        except HeadraceError as error:
            if executor.has_ended:
                raise  # its end was told, and the log did not take it
            return _TaskResult(await executor.end(to_failure(error)), error)
