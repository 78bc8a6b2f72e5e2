"""The part of a run that a mode works on: a run, sub-agent or task, and all durable operations in it.

A mode that runs again after a crash makes the same requests in the same order and receives the recorded results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from headrace.errors import InvalidRequest
from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator.agents.definition import Definition, StageSettings
from services.orchestrator.mode_api import final_answer, turns
from services.orchestrator.mode_api.plan import OPEN, ActivePlan, Task
from services.orchestrator.mode_api.turns import (
    Repetition,
    ask_first_turn,
    translating_call_limit,
)
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.control.state import Stopped
from services.orchestrator.run.scope import Scope
from services.orchestrator.setup.system_message import load_file_values
from services.orchestrator.turn.conversation import Conversation

INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'

NOT_TOLD = common_pb2.Failure(code="TASK_NOT_UPDATED", message="the model did not say how the task ended")
FAILED = common_pb2.Failure(code="TASK_FAILED", message="the model could not do the task")
CODE_FAILED = common_pb2.Failure(code="TASK_FAILED", message="the mode's code ended the task with an error")


class TaskScope:
    def __init__(self, parent: Scope, peers: Peers, planned: ActivePlan, task: Task, settings: StageSettings) -> None:
        self.scope = parent.open_task(task.task_id, settings)
        self._peers = peers
        self._planned = planned
        self.task = task
        self.has_ended = False
        """Whether readers have received an end, even if the log refused it."""

    @property
    def results(self) -> dict[str, str]:
        """The last result of each tool, by name."""
        return self.scope.tools.results

    @property
    def recorded_end(self) -> agent_pb2.AgentDelta | None:
        """The end that an earlier owner recorded; None if there is none, or while more is left to replay."""
        return self.scope.restored.task_end

    async def begin(self) -> None:
        task, scope = self.task, self.scope
        files = await load_file_values(scope, self._peers, scope.settings)
        scope.enter(scope.settings, **self._planned.values(task), **files)
        await self._planned.mark(task, "in_progress")
        start = agent_pb2.TaskStart(task_id=task.task_id, run_id=scope.run.id, description=task.description)
        await scope.record_start(start, lambda line: _make_last_event(task, line.state, line.error))

    async def end(self, text: str, error: common_pb2.Failure | None = None) -> None:
        """End the task according to its status, or as failed if there is an `error`; readers get `text` as its
        summary."""
        task, scope = self.task, self.scope
        if error is None and task.status in OPEN:
            error = NOT_TOLD
        if error is not None:
            await self._planned.mark(task, "failed")
        if task.status == "completed":
            event = agent_pb2.TaskComplete(
                task_id=task.task_id, summary=text or None, artifact_ids=[*scope.notes.artifact_ids]
            )
        elif task.status == "failed":
            event = agent_pb2.TaskFail(task_id=task.task_id, error=error or FAILED)
        else:
            event = agent_pb2.TaskCancel(task_id=task.task_id)
        # The model's unfinished calls are closed in the same commit, so no later owner takes them for complete.
        cut = scope.close(INTERRUPTED_RESULT)
        self.has_ended = True
        await scope.record_end(event, preceding=cut)
        scope.run.scopes.remove(scope)

    async def mark(self, status: str) -> None:
        await self._planned.mark(self.task, status)


def _make_last_event(task: Task, state: str, error: common_pb2.Failure) -> agent_pb2.TaskFail | agent_pb2.TaskCancel:
    if state == State.FAILED:
        return agent_pb2.TaskFail(task_id=task.task_id, error=error)
    return agent_pb2.TaskCancel(task_id=task.task_id)


TOGETHER_MAX = 8
"""Default maximum of concurrent works in `run_together`."""

__all__ = ["TOGETHER_MAX", "ModeRun", "Stopped"]

T = TypeVar("T")


class ModeRun:
    """One scope with its model and tools, used by one task at a time."""

    def __init__(self, conversation: Conversation, message: str) -> None:
        self.conversation = conversation
        """The scope's conversation, for the API itself and built-in modes; operators' modes must not use it."""
        self.message = message
        """The text the mode must answer: the user's message, or a sub-agent's task."""

    @property
    def run_id(self) -> str:
        return self.conversation.run.id

    @property
    def chat_id(self) -> str:
        return self.conversation.run.chat_id

    @property
    def agent(self) -> Definition:
        return self.conversation.scope.agent

    @property
    def settings(self) -> StageSettings:
        """Settings of the scope's current stage."""
        return self.conversation.scope.settings

    @property
    def tools(self) -> list[str]:
        """Names of the tools that the model sees."""
        return self.conversation.scope.tools.names

    @property
    def wanted_choice(self) -> str:
        """The query's toolChoice, which applies only to the run itself; empty if the query has none."""
        scope = self.conversation.scope
        return scope.run.query.tool_choice if scope is scope.run.main else ""

    def check_wants_no_call(self) -> None:
        """Raise InvalidRequest if the query's toolChoice requires a call, for modes that cannot ensure one."""
        if self.wanted_choice not in ("", "auto", "none"):
            raise InvalidRequest.of("toolChoice", f"must be auto or none for an agent of mode {self.agent.mode}")

    async def add_message(self, text: str) -> None:
        """Add a message for the model's next turn."""
        await self.conversation.scope.add_user_message(text)

    async def ask_first_turn(self, choice: str, *, parallel: bool) -> Answer:
        """Stream one turn, with reminders if a call is required. Raises ToolRequired, OutOfCalls."""
        with translating_call_limit():
            return await ask_first_turn(self.conversation, choice, parallel=parallel)

    async def ask_model(self, choice: str, *, reasoning: bool | None = None) -> Answer:
        """Stream one turn; `choice` is none, auto, required or a tool's name. Raises OutOfCalls."""
        with translating_call_limit():
            return await self.conversation.ask_model(choice, reasoning=reasoning)

    async def execute_calls(self, answer: Answer, *, parallel: bool, repetition: Repetition | None = None) -> None:
        """Produce a result for each call of an answer. Raises OutOfCalls, and Stuck if the model repeats itself."""
        with translating_call_limit():
            if repetition is not None:
                await repetition.execute_calls(self.conversation, answer, parallel=parallel)
            else:
                await self.conversation.execute_calls(answer, parallel=parallel)

    async def refuse_calls(self, answer: Answer, why: str) -> None:
        await self.conversation.refuse_calls(answer, why)

    async def take_turns(self, choice: str, *, parallel: bool) -> turns.Turns:
        """Take turns with tools until the model answers without a call, or a limit is reached."""
        return await turns.take_turns(self.conversation, choice, parallel=parallel)

    async def ask_for_final_answer(self, limit: str = "") -> str:
        """Stream the answer, without tools; return the finish reason. `limit` is the limit that ended the work, if
        any."""
        return await final_answer.ask_for_final_answer(self.conversation, limit)

    async def notice(self, code: str, message: str) -> None:
        """Send readers a notice, which is not part of an answer."""
        await self.conversation.scope.notice(code, message)

    async def enter(self, settings: StageSettings, **values: str) -> None:
        """Switch to another stage, with its prompt filled from `values`."""
        files = await load_file_values(self.conversation.scope, self.conversation.peers, settings)
        self.conversation.scope.enter(settings, **values, **files)

    def with_tools(self, tools: Iterable[tools_pb2.Tool]) -> ModeRun:
        """Return the same scope with other tools for its model."""
        return ModeRun(Conversation(self.conversation.scope, self.conversation.peers, [*tools]), self.message)

    def begin_plan(self) -> ActivePlan:
        """Create the scope's plan, without tasks."""
        scope = self.conversation.scope
        scope.planned = ActivePlan(scope.run.id, scope.run.chat_id, scope.restored, scope.record)
        return scope.planned

    def open_task(self, planned: ActivePlan, task: Task, settings: StageSettings) -> TaskScope:
        """Open the scope of a task, which begins with a copy of this conversation."""
        return TaskScope(self.conversation.scope, self.conversation.peers, planned, task, settings)

    def work_on(self, task: TaskScope, tools: Iterable[tools_pb2.Tool] = ()) -> ModeRun:
        """Return a task's view for its mode, with this scope's tools and further ones."""
        conversation = Conversation(task.scope, self.conversation.peers, [*self.conversation.tools, *tools])
        return ModeRun(conversation, task.task.description)

    async def run_together(self, works: Sequence[Coroutine[Any, Any, T]], *, at_once: int = TOGETHER_MAX) -> list[T]:
        """Run the works concurrently and return their results in order.

        Each must use its own scopes, that is, tasks. The first error cancels the others and is raised.

        Raises:
            Stopped: The run is cancelled after this step.
        """
        control, clock = self.conversation.run.control, self.conversation.run.spending.clock
        places = asyncio.Semaphore(at_once)

        async def run_in_place(work: Coroutine[Any, Any, T]) -> T | None:
            async with places:
                try:
                    with clock.working():
                        return await work
                except Stopped:
                    return None  # the others end their steps too, and the run stops after them

        try:
            with clock.aside():
                async with asyncio.TaskGroup() as group:
                    running = [group.create_task(run_in_place(work)) for work in works]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            for work in works:
                work.close()
        control.check()
        return [task.result() for task in running]  # pyright: ignore[reportReturnType] - None only where it is stopped
