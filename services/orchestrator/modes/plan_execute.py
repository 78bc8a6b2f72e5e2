"""PLAN_EXECUTE: a plan, its tasks in the strategy's order, then one streamed answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import BudgetExceeded, HeadraceError, InvalidRequest, to_failure
from services.orchestrator.agents import prompts
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import ADD, RESTATE, ActivePlan, Level, Task, groups
from services.orchestrator.mode_api.turns import OutOfCalls
from services.orchestrator.modes.planner import Planner, RecordedTaskFailure, TaskExecutor, TaskReport


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
        """Add the report to the planner's scope, from which later tasks start."""
        text = prompts.fill_placeholders(prompts.load_text("task_report"), report.values)
        self._mode.conversation.scope.log_steps_as("execute")
        await self._mode.add_message(text)
        self._mode.conversation.scope.tools.add_results(report.results)
        self.planned.history.append(text)

    async def run_tasks(self, tasks: Sequence[Task], at_once: int) -> None:
        """Run tasks concurrently and report them in order.

        Raises:
            HeadraceError: The first task's error, if no task could ask its model.
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
        if self.is_cut or self._mode.conversation.run.control.is_stopping:
            return _TaskResult()
        executor = await self.begin_task(task)
        try:
            return _TaskResult(await self.execute_task(executor))
        except BudgetExceeded:
            raise
        except HeadraceError as error:
            if executor.has_ended:
                raise  # its end was published, and the log refused it
            return _TaskResult(await executor.end(to_failure(error)), error)


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


async def run_recursive(work: PlanRunner) -> None:
    await _run_level(work, Level(None, work.planned.plan.open(), work.thought), depth=0)


async def _run_level(work: PlanRunner, level: Level, depth: int) -> str:
    """Run the level's tasks; return the last one's status. `depth` is 0 for the plan's own list."""
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
    """Run a composite task in parts, or as a whole if the planner adds none."""
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


async def run_sequential(work: PlanRunner) -> None:
    for task in work.planned.plan.open():
        await work.run_task(task)
        if work.is_cut or task.status == "failed":
            return


STRATEGIES = {"SEQUENTIAL": run_sequential, "PARALLEL": run_parallel, "RECURSIVE": run_recursive}


async def run_plan_execute(mode: ModeRun) -> str:
    """Run the mode; `mode` has the tools that tasks may use."""
    section = mode.agent.plan_execute
    assert section is not None, "the mode has its section"
    if mode.wanted_choice not in ("", "auto"):
        raise InvalidRequest.of("toolChoice", "must be auto for an agent that plans: its tasks choose their tools")
    planned = mode.begin_plan()
    planning = mode.with_tools([ADD, RESTATE] if section.strategy == "RECURSIVE" else [ADD])
    planner = Planner(planning, planned, mode.settings)
    work = PlanRunner(mode, planned, planner)
    reason = ""
    try:
        work.thought = await planner.make_plan(deep_thinking=section.plan.deep_thinking)
        await STRATEGIES[section.strategy](work)
    except OutOfCalls:
        reason = "budget"
    await planned.drop(planned.plan.open())
    mode.conversation.scope.log_steps_as("execute")
    await mode.add_message(prompts.load_text("summary"))
    await mode.enter(mode.agent.stage_settings("summary"), **planned.values())
    return await planning.ask_for_final_answer("budget" if work.is_cut else reason)
