"""One task of a plan, of which other scopes see only the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.calls.own_tools.planning import GET, UPDATE
from services.orchestrator.modes.limits import OutOfCalls, tell_limit, translating_call_limit
from services.orchestrator.modes.oneshot import ask_first_turn, choose_first_turn
from services.orchestrator.modes.repetition import Repetition, Stuck
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.run.plan.plan import OPEN, Task
from services.orchestrator.setup.file_values import load_file_values
from services.orchestrator.turn.conversation import Conversation

REPAIRS_MAX = 1

INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'

NOT_TOLD = common_pb2.Failure(code="TASK_NOT_UPDATED", message="the model did not say how the task ended")
FAILED = common_pb2.Failure(code="TASK_FAILED", message="the model could not do the task")


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
    def __init__(self, talk: Conversation, planned: ActivePlan, task: Task) -> None:
        """`talk` belongs to the plan's scope."""
        self.scope = talk.scope.open_task(task.task_id)
        self._talk = talk
        self._planned = planned
        self._task = task
        self._text = ""
        self.has_ended = False
        """Whether readers were told of an end, though the log may have refused it."""

    async def begin(self) -> None:
        task, scope = self._task, self.scope
        files = await load_file_values(scope, self._talk.peers, scope.settings)
        scope.enter(scope.settings, **self._planned.values(task), **files)
        await self._planned.mark(task, "in_progress")
        start = agent_pb2.TaskStart(task_id=task.task_id, run_id=scope.run.id, description=task.description)
        await scope.record_start(start, lambda line: _make_last_event(task, line))

    async def work(self) -> None:
        """Run turns until the task's status is stated.

        Raises:
            OutOfCalls, RecordedTaskFailure: The task ended before that.
        """
        talk = Conversation(self.scope, self._talk.peers, [*self._talk.tools, UPDATE, GET])
        await self._add_prompt("task_work")
        choice = "required" if choose_first_turn(self._talk) == "required" else "auto"
        repetition = Repetition(self.scope.agent.limits.max_repeats)
        for _ in range(self.scope.settings.steps_max):
            self._check_recorded_end()
            with translating_call_limit():
                answer = await ask_first_turn(talk, choice, parallel=False)
                choice = "auto"
                self._text = answer.text.strip() or self._text
                try:
                    await repetition.execute_calls(talk, answer, parallel=False)
                except Stuck:
                    break
            if not answer.calls or self._task.status not in OPEN:
                break
        else:
            await tell_limit(self.scope, "steps")
        for attempt in range(REPAIRS_MAX + 1):
            if self._task.status not in OPEN:
                return
            self._check_recorded_end()
            await self._add_prompt("plan_repair" if attempt else "task_update", tool=UPDATE.name)
            with translating_call_limit():
                answer = await talk.ask_model(UPDATE.name, reasoning=False)
                self._text = self._text or answer.text.strip()
                await talk.execute_calls(answer, parallel=False)

    async def end(self, error: common_pb2.Failure | None = None, *, text: str = "") -> TaskReport:
        """End the task, as failed if there is an `error`; `text` replaces the model's last text."""
        task, scope = self._task, self.scope
        if error is None and task.status in OPEN:
            error = NOT_TOLD
        if error is not None:
            await self._planned.mark(task, "failed")
        text = text or self._text
        if task.status == "completed":
            event = agent_pb2.TaskComplete(
                task_id=task.task_id, summary=text or None, artifact_ids=[*scope.notes.artifact_ids]
            )
        elif task.status == "failed":
            event = agent_pb2.TaskFail(task_id=task.task_id, error=error or FAILED)
        else:
            event = agent_pb2.TaskCancel(task_id=task.task_id)
        # What its model had begun is closed in the same breath: no later owner of the run is to take it for whole.
        cut = scope.close(INTERRUPTED_RESULT)
        self.has_ended = True
        await scope.record_end(event, behind=cut)
        scope.run.scopes.remove(scope)
        return TaskReport(task, text, scope.tools.results)

    async def cancel(self) -> TaskReport:
        await self._planned.mark(self._task, "canceled")
        return await self.end()

    def _check_recorded_end(self) -> None:
        end = self.scope.recording.task_end
        if end is not None and end.HasField("task_fail"):
            raise RecordedTaskFailure(end.task_fail.error)
        if end is not None:
            raise OutOfCalls

    async def _add_prompt(self, text: str, **values: str) -> None:
        values |= self._planned.values(self._task)
        await self.scope.add_user_message(prompts.fill_placeholders(prompts.load_text(text), values))


def _make_last_event(task: Task, line: memory_pb2.RunLine) -> agent_pb2.TaskFail | agent_pb2.TaskCancel:
    if line.state == "failed":
        return agent_pb2.TaskFail(task_id=task.task_id, error=line.error)
    return agent_pb2.TaskCancel(task_id=task.task_id)
