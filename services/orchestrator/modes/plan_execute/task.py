"""One task of a plan, of which other scopes see only the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.v1 import common_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.mode_api.limits import OutOfCalls
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import GET, OPEN, UPDATE, ActivePlan, Task
from services.orchestrator.mode_api.repetition import Repetition, Stuck

REPAIRS_MAX = 1


class RecordedTaskFailure(Exception):
    """An earlier owner could not ask the task's model."""

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
        """Whether readers were told of an end, though the log may have refused it."""
        return self._opened.has_ended

    async def begin(self) -> None:
        await self._opened.begin()

    async def work(self) -> None:
        """Run turns until the task's status is stated.

        Raises:
            OutOfCalls, RecordedTaskFailure: The task ended before that.
        """
        await self._add_prompt("task_work")
        choice = self._mode.wanted_choice or self._work.choose_first_turn()
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
            await self._work.tell_limit("steps")
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
