"""Runs tasks for a strategy and reports each to the planner's scope."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import BudgetExceeded, HeadraceError, to_failure
from services.orchestrator.agents import prompts
from services.orchestrator.modes.limits import OutOfCalls
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.task import RecordedTaskFailure, TaskExecutor, TaskReport
from services.orchestrator.run.control.stop_control import Stopped
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.run.plan.plan import Task
from services.orchestrator.turn.conversation import Conversation


@dataclass(frozen=True, slots=True)
class _TaskResult:
    report: TaskReport | None = None

    error: HeadraceError | None = None


class PlanRunner:
    def __init__(self, talk: Conversation, planned: ActivePlan, planner: Planner) -> None:
        self.run = talk.run
        self.agent = talk.scope.agent
        self.planned = planned
        self.planner = planner
        self.is_cut = False
        self.thought = ""
        self._talk = talk

    async def begin_task(self, task: Task) -> TaskExecutor:
        executor = TaskExecutor(self._talk, self.planned, task)
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
        scope = self._talk.scope
        text = prompts.fill_placeholders(prompts.load_text("task_report"), report.values)
        scope.log_steps_as("execute")
        await scope.add_user_message(text)
        scope.tools.add_results(report.results)
        self.planned.history.append(text)

    async def run_tasks(self, tasks: Sequence[Task], at_once: int) -> None:
        """Run tasks together and report them in order.

        Raises:
            HeadraceError: The first task's error, when no task's model could be asked.
            Stopped: The run is cancelled after this step.
        """
        places = asyncio.Semaphore(at_once)
        try:
            with self.run.spending.clock.aside():
                async with asyncio.TaskGroup() as group:
                    doing = [group.create_task(self._run_in_group(task, places)) for task in tasks]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        ends = [task.result() for task in doing]
        self.run.control.check()
        for end in ends:
            if end.report is not None:
                await self.report_to_planner(end.report)
        errors = [end.error for end in ends if end.error is not None]
        if len(errors) == len(tasks):
            raise errors[0]

    async def _run_in_group(self, task: Task, places: asyncio.Semaphore) -> _TaskResult:
        async with places:
            if self.is_cut or self.run.control.is_stopping:
                return _TaskResult()
            executor = await self.begin_task(task)
            try:
                with self.run.spending.clock.working():
                    return _TaskResult(await self.execute_task(executor))
            except Stopped:
                # The others end their steps too; the run then closes this one's scope.
                return _TaskResult()
            except BudgetExceeded:
                raise
            except HeadraceError as error:
                if executor.has_ended:
                    raise  # its end was told, and the log did not take it
                return _TaskResult(await executor.end(to_failure(error)), error)
