"""The planner's turns in the plan's scope, and the execution of one task in its own scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import PlanMissing
from headrace.v1 import common_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import ADD, GET, OPEN, RESTATE, UPDATE, ActivePlan, Level, Task, offering_plan
from services.orchestrator.mode_api.turns import Answer, OutOfCalls, Repetition, Stuck, choose_first_turn, tell_limit

REPAIRS_MAX = 1


class RecordedTaskFailure(Exception):
    """An earlier owner of the run could not ask the task's model."""

    def __init__(self, failure: common_pb2.Failure) -> None:
        super().__init__(failure.code)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class TaskReport:
    task: Task
    text: str

    results: Mapping[str, str]

    @property
    def values(self) -> dict[str, str]:
        return {
            "task_id": self.task.task_id,
            "task_description": self.task.description,
            "status": self.task.status,
            "result": self.text or "(it said nothing)",
        }


class TaskExecutor:
    def __init__(self, mode: ModeRun, planned: ActivePlan, task: Task) -> None:
        """`mode` belongs to the plan's scope."""
        self._opened = mode.open_task(planned, task, mode.agent.stage_settings("execute"))
        self._mode = mode
        self._work = mode.work_on(self._opened, [UPDATE, GET])
        self._planned = planned
        self._task = task
        self._text = ""

    @property
    def has_ended(self) -> bool:
        """Whether readers have received an end, even if the log refused it."""
        return self._opened.has_ended

    async def begin(self) -> None:
        await self._opened.begin()

    async def work(self) -> None:
        """Run turns until the model states the task's status.

        Raises:
            OutOfCalls, RecordedTaskFailure: The task ended before that.
        """
        await self._add_prompt("task_work")
        choice = self._mode.wanted_choice or choose_first_turn(self._work.conversation)
        repetition = Repetition(self._mode.agent.limits.max_repeats)
        for _ in range(self._work.settings.steps_max):
            self._check_recorded_end()
            answer = await self._work.ask_first_turn(choice, parallel=False)
            choice = "auto"
            self._text = answer.text.strip() or self._text
            try:
                await self._work.execute_calls(answer, parallel=False, repetition=repetition)
            except Stuck:
                break
            if not answer.calls or self._task.status not in OPEN:
                break
        else:
            await tell_limit(self._work.conversation.scope, "steps")
        for attempt in range(REPAIRS_MAX + 1):
            if self._task.status not in OPEN:
                return
            self._check_recorded_end()
            await self._add_prompt("plan_repair" if attempt else "task_update", tool=UPDATE.name)
            answer = await self._work.ask_model(UPDATE.name, reasoning=False)
            self._text = self._text or answer.text.strip()
            await self._work.execute_calls(answer, parallel=False)

    async def end(self, error: common_pb2.Failure | None = None, *, text: str = "") -> TaskReport:
        """End the task, as failed if there is an `error`; `text` replaces the model's last text."""
        text = text or self._text
        await self._opened.end(text, error)
        return TaskReport(self._task, text, self._opened.results)

    async def cancel(self) -> TaskReport:
        await self._planned.mark(self._task, "canceled")
        return await self.end()

    def _check_recorded_end(self) -> None:
        end = self._opened.recorded_end
        if end is not None and end.HasField("task_fail"):
            raise RecordedTaskFailure(end.task_fail.error)
        if end is not None:
            raise OutOfCalls

    async def _add_prompt(self, text: str, **values: str) -> None:
        values |= self._planned.values(self._task)
        await self._work.add_message(prompts.fill_placeholders(prompts.load_text(text), values))


THOUGHT_CHARS_MAX = 2000


class Planner:
    def __init__(self, mode: ModeRun, planned: ActivePlan, settings: StageSettings) -> None:
        self._mode = mode
        self._planned = planned
        self._settings = settings

    async def make_plan(self, *, deep_thinking: bool) -> str:
        """Make the plan, after a draft if `deep_thinking`; return the planner's text.

        Raises:
            PlanMissing: The model added no task.
        """
        thought = ""
        conversation = self._mode.conversation
        async with offering_plan(conversation.scope, conversation.peers):
            if deep_thinking:
                draft = await self._mode.ask_model("none", reasoning=True)
                await self._mode.refuse_calls(draft, "no tool may be called for the draft")
                thought = draft.text
                await self._add_prompt("plan_generate")
            answer = await self._ask_for_change(ADD.name)
        if answer is None:
            raise PlanMissing(f"the model added no tasks in {REPAIRS_MAX + 1} turns; ask again or another model")
        return answer.text or thought

    async def split_task(self, task: Task) -> Level:
        """Return the level below the task, empty if the planner adds no parts."""
        await self._add_prompt("plan_split", **self._planned.values(task))
        before = {id(known) for known in self._planned.plan.tasks}
        self._planned.parent = task
        try:
            answer = await self._ask_for_change(ADD.name)
        finally:
            self._planned.parent = None
        parts = [part for part in self._planned.plan.open() if id(part) not in before]
        return Level(task, parts, answer.text if answer is not None else "")

    async def restate_level(self, level: Level, report: TaskReport) -> None:
        """Have the planner restate the level's remaining tasks; without an answer the level stays the same."""
        remaining = [f"- {task.task_id}: {task.description}" for task in level.remaining]
        await self._add_prompt(
            "plan_restate",
            **report.values,
            parent="the plan itself" if level.parent is None else level.parent.description,
            thought=level.thought[:THOUGHT_CHARS_MAX] or "none",
            remaining="\n".join(remaining) or "nothing",
        )
        self._planned.level = level
        try:
            answer = await self._ask_for_change(RESTATE.name)
        finally:
            self._planned.level = None
        level.thought = (answer.text if answer is not None else "") or level.thought

    async def ask_for_more_tasks(self) -> bool:
        await self._add_prompt("plan_feedback")
        before = self._planned.changes
        await self._ask("auto")
        return self._planned.changes > before

    async def _ask_for_change(self, tool: str) -> Answer | None:
        """Ask for a change, with one correction; return None if the plan stays the same."""
        choice = tool if len(self._mode.conversation.tools) > 1 else "required"
        before = self._planned.changes
        for attempt in range(REPAIRS_MAX + 1):
            if attempt:
                await self._add_prompt("plan_repair", tool=tool)
            answer = await self._ask(choice, reasoning=False)
            if self._planned.changes > before:
                return answer
        return None

    async def _ask(self, tool_choice: str, *, reasoning: bool | None = None) -> Answer:
        answer = await self._mode.ask_model(tool_choice, reasoning=reasoning)
        await self._mode.execute_calls(answer, parallel=True)
        return answer

    async def _add_prompt(self, text: str, **values: str) -> None:
        self._mode.conversation.scope.log_steps_as(self._settings.stage)
        await self._mode.add_message(prompts.fill_placeholders(prompts.load_text(text), values))
