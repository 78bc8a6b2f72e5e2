"""The planner's turns, all in the plan's scope."""

from __future__ import annotations

from headrace.errors import PlanMissing
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import ADD, RESTATE, ActivePlan, Level, Task
from services.orchestrator.mode_api.turns import Answer
from services.orchestrator.modes.plan_execute.task import TaskReport

REPAIRS_MAX = 1

THOUGHT_CHARS_MAX = 2000


class Planner:
    def __init__(self, mode: ModeRun, planned: ActivePlan, settings: StageSettings) -> None:
        self._mode = mode
        self._planned = planned
        self._settings = settings

    async def make_plan(self, *, deep_thinking: bool) -> str:
        """Draft first if `deep_thinking`; return the planner's text.

        Raises:
            PlanMissing: The model added no task.
        """
        thought = ""
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
        """Return the level below the task, empty when the planner adds no parts."""
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
        """Without an answer the level stays as it is."""
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
        """Ask for a change, with one repair; return None when the plan stays the same."""
        choice = tool if self._mode.tool_count > 1 else "required"
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
        self._mode.log_steps_as(self._settings.stage)
        await self._mode.add_message(prompts.fill_placeholders(prompts.load_text(text), values))
