"""One line of thought of a run: the run itself, a task of its plan, or a sub-agent.

A scope has its own context in memory, its own stage and system message, one open answer at a time and the calls that
wait for results. What it publishes carries its ids, so that readers can fold scopes apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.agents.definition import Definition, StageSettings
from services.orchestrator.run import insights
from services.orchestrator.run.answers.answer import Answer, is_draft
from services.orchestrator.run.answers.call import Call, result_event
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.attention import Attention
from services.orchestrator.run.notes import ScopeNotes
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.run.stage import ActiveStage

if TYPE_CHECKING:
    from services.orchestrator.run.prompt_context import PromptContext
    from services.orchestrator.run.run import Run

Delta = agent_pb2.AgentDelta

DRAFT_STAGE = "verify"
"""The stage of answers that are checked before readers get one; no model is told of its steps."""

SUBAGENTS_MAX = 50
"""Sub-agents of one scope that work at the same time; further ones wait. maxToolCalls limits how many the tree has."""


@dataclass(frozen=True, slots=True)
class ScopeIds:
    """The ids of a scope; without any it is the run's own."""

    context_id: str | None = None
    """Its context in memory; None: the run's own."""

    subagent_id: str | None = None
    task_id: str | None = None
    lineage: tuple[str, ...] = ()
    """Ids of the sub-agents that lead to it, its own last; none for the run itself."""


MAIN = ScopeIds()


class Scope:
    """Used by one task at a time; owned by its run, which closes it at the latest when it ends."""

    def __init__(
        self,
        run: Run,
        agent: Definition,
        settings: StageSettings,
        scope_ids: ScopeIds = MAIN,
        *,
        thoughts: list[str] | None = None,
    ) -> None:
        """`thoughts` are those of the scope that this one works for, where it adds to them."""
        self.run = run
        self.agent = agent
        """The agent that works here: the run's, or a sub-agent."""
        self.ids = scope_ids
        self.recording = run.recording.scope(scope_ids.context_id)
        """The recording of earlier owners in this scope, which is replayed first."""
        self.stage = ActiveStage(settings, self.recording.last_system)
        self.notes = ScopeNotes(self.recording.artifact_ids, thoughts)
        self.planned: ActivePlan | None = None
        """The plan that the scope made or works in."""
        self.attention = Attention()
        """Reminders for its model."""
        self.tools = Toolbox()
        """Tools that its model may call."""
        self.subagent_places = asyncio.Semaphore(SUBAGENTS_MAX)
        """One place for each sub-agent that works for it."""
        self.open_calls: dict[str, Call] = {}
        """Calls without a result, by tool id."""
        self.publish = partial(run.feed.publish, subagent_id=scope_ids.subagent_id, task_id=scope_ids.task_id)
        """Feed.publish, with this scope's ids."""
        self._answer: Answer | None = None
        self._make_end: Callable[[memory_pb2.RunLine], Message] | None = None

    @property
    def settings(self) -> StageSettings:
        """The prompt, model and tools in force."""
        return self.stage.settings

    @property
    def system(self) -> str:
        """The system message in force."""
        return self.stage.system

    @property
    def context_id(self) -> str | None:
        return self.ids.context_id

    @property
    def subagent_id(self) -> str | None:
        return self.ids.subagent_id

    @property
    def lineage(self) -> tuple[str, ...]:
        return self.ids.lineage

    @property
    def depth(self) -> int:
        """1 for a sub-agent that the run has called, 0 for the run itself."""
        return len(self.ids.lineage)

    def open_subagent(self, agent: Definition, subagent_id: str) -> Scope:
        """A scope for a sub-agent of this one; it is open until its run closes its family."""
        scope_ids = ScopeIds(subagent_id, subagent_id, None, (*self.ids.lineage, subagent_id))
        return self.run.scopes.add(Scope(self.run, agent, agent.primary, scope_ids))

    def open_task(self, task_id: str) -> Scope:
        """A scope for a task of this one's plan, which begins with what this one knows; open until it is removed."""
        context_id = f"task-{task_id}"
        if self.ids.context_id:
            context_id = f"{self.ids.context_id}.{context_id}"
        scope_ids = ScopeIds(context_id, self.ids.subagent_id, task_id, self.ids.lineage)
        settings = self.agent.stage_settings("execute")
        scope = Scope(self.run, self.agent, settings, scope_ids, thoughts=self.notes.thoughts)
        scope.stage.prompt_context = self.stage.prompt_context
        scope.planned = self.planned
        scope.attention = self.attention.without_todos()
        scope.tools.add_results(self.tools.results)
        return self.run.scopes.add(scope)

    def use_agent(self, agent: Definition) -> None:
        """Go on with another form of the agent: other models."""
        self.agent = agent

    def begin(self, prompt_context: PromptContext) -> None:
        """Enter the agent's first stage; all system messages of the scope are made from `prompt_context`."""
        self.stage.prompt_context = prompt_context
        self.enter(self.agent.primary)

    def enter(self, settings: StageSettings, **values: str) -> None:
        """Go on to a stage: its settings are in force, its prompt with `values` filled in is the system message."""
        self.stage.enter(settings, values, self.recording)

    def log_steps_as(self, stage: str) -> None:
        """Log the next steps under this stage; what is in force stays."""
        self.stage.name = stage

    def offer_tools(self, tools: Iterable[tools_pb2.Tool]) -> None:
        """Let the model call these tools, and no others."""
        self.tools = Toolbox(tools, self.tools.results)

    def follow_plan(self, planned: ActivePlan) -> None:
        """Log this plan with the steps."""
        self.planned = planned

    def end_with_run(self, make_end: Callable[[memory_pb2.RunLine], Message] | None) -> None:
        """Have readers told that what the scope stands for (a task, a sub-agent) ends, when its run does before it: by
        the event that is made from the run's last line. None: it has ended.
        """
        self._make_end = make_end

    async def record(self, payload: Message, *, behind: Sequence[memory_pb2.LogLine] = ()) -> Delta:
        """Publish an event that no other line of the log implies: it is on disk before any reader has it, together with
        the lines `behind` which it stands.
        """
        if recorded := self.recording.event(payload):
            return recorded
        await self.run.state.wait_for_start()
        event = self.publish(payload, held=True)
        line = memory_pb2.EventLine(event=event, context_id=self.context_id)
        await self.run.log.append([*behind, memory_pb2.LogLine(event=line)])
        self.run.feed.release(event.seq)
        return event

    async def notice(self, code: str, message: str) -> None:
        """Tell the user something that ends nothing."""
        await self.record(agent_pb2.RunNotice(run_id=self.run.id, code=code, message=message))

    def begin_answer(self, hidden: Collection[str] = ()) -> Answer:
        """A new model answer; it is the scope's open one until `end_answer` or `close`. Readers get nothing of what is
        `hidden`: content, reasoning.
        """
        self._answer = Answer(self.run.feed, self.publish, self.run.block_names, self.tools, hidden)
        return self._answer

    def forget_answer(self) -> bool:
        """Forget the open answer, if there is one; False when readers have something of it, so that it stays."""
        if self._answer is not None and not self._answer.is_empty:
            return False
        self._answer = None
        return True

    @property
    def has_heard(self) -> bool:
        """Whether anything of the open answer has come."""
        return self._answer is not None and self._answer.has_begun

    async def retract_answer(self, reason: str) -> None:
        """Have readers drop what they have of the open answer: it is asked for again."""
        answer, self._answer = self._answer, None
        if answer is None or answer.is_empty:
            return
        await self.record(agent_pb2.AttemptReset(run_id=self.run.id, from_seq=answer.from_seq, reason=reason))

    def recalled_answer(self) -> Answer | None:
        """The next answer, where the log has it already; None: the model is to be asked."""
        pieces = self.recording.answer()
        if not pieces:
            return None
        answer = Answer(self.run.feed, self.publish, self.run.block_names, self.tools)
        answer.recall(pieces)
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer

    async def end_answer(self) -> None:
        """Close the open answer and commit its pieces, before any of its tools runs."""
        if messages := self._take_answer():
            await self.commit(messages)

    def note_answer(self, answer: Answer) -> Answer:
        """Count an answer of the model, and note what it says."""
        self.run.spending.count_answer(self.ids.subagent_id)
        self.notes.last_text = answer.text.strip() or self.notes.last_text
        if thought := answer.hidden_reasoning:
            self.notes.thoughts.append(thought)
        return answer

    async def add_steers(self) -> None:
        """Commit what people have told the run since its last turn as messages to the model."""
        steering, recording = self.run.steering, self.recording
        while steer := steering.next():
            if not recording.is_used_up and not recording.is_next_said(steer.text):
                return  # it came later than this turn
            steering.hear()
            await self.add_user_message(steer.text)

    async def add_user_message(self, text: str) -> None:
        """Commit a message to the model that no person wrote: a repair prompt, a task."""
        if self.recording.user_message() is not None:
            return
        message = memory_pb2.LogMessage(ts=ids.now_ms(), message=llm_pb2.Message(role="user"))
        message.message.content.add(text=text)
        await self.commit([message])

    def result(self, call: Call, text: str, ok: bool) -> memory_pb2.LogMessage:
        """Publish a call's result, and return its message for the log."""
        self.has_result(call)
        event = self.publish(result_event(call, text, ok))
        message = memory_pb2.LogMessage(ts=event.timestamp, ok=ok)
        call.keep_in(message)
        message.message.role, message.message.name, message.message.tool_call_id = "tool", call.name, call.call_id
        message.message.content.add(text=text)
        message.events.first_seq = message.events.last_seq = event.seq
        return message

    def has_result(self, call: Call) -> None:
        """Note that nobody is waited for any more."""
        del self.open_calls[call.tool_id]
        if call.kind == "frontend":
            self.run.waits.end(call.tool_id)

    async def commit(self, messages: list[memory_pb2.LogMessage]) -> None:
        """Put messages into the log as the scope's next step; they are on disk when this returns."""
        await self.run.state.wait_for_start()
        await self.run.log.append([self._step_line(messages), *self._insight_lines(messages)])

    def _insight_lines(self, messages: Sequence[memory_pb2.LogMessage]) -> list[memory_pb2.LogLine]:
        """The insights to commit with these messages: none where recap is off, or where a model is to write them."""
        recap = self.agent.memory.recap
        results = [message for message in messages if message.message.role == "tool" and message.ok]
        if not recap.enabled:
            return []
        if recap.insights == "llm":
            self.notes.keep_results(results)
            return []
        return [insights.insight_line(self.context_id, message, insights.preview(message)) for message in results]

    def recall_result(self, message: memory_pb2.LogMessage) -> None:
        """Have an insight written about a result of an earlier owner, where a model was to do it and has not."""
        recap, call_id = self.agent.memory.recap, message.message.tool_call_id
        if recap.enabled and recap.insights == "llm" and message.ok and not self.recording.has_insight(call_id):
            self.notes.keep_results([message])

    def close(self, open_result: str) -> list[memory_pb2.LogLine]:
        """Close what is open, give each call without a result `open_result`, and return the lines for the log."""
        messages = self._take_answer()
        messages += [self.result(call, open_result, ok=False) for call in [*self.open_calls.values()]]
        return [self._step_line(messages)] if messages else []

    def end(self, line: memory_pb2.RunLine) -> list[memory_pb2.LogLine]:
        """Say that what the scope stands for ends with its run, which `line` ends; the lines for the log."""
        if self._make_end is None:
            return []
        event = self.publish(self._make_end(line))
        return [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=self.context_id))]

    def calls_waiting_for(self, tool_id: str) -> bool:
        """Whether a frontend call with this id has been announced and has no result yet."""
        calls = [*self.open_calls.values(), *(self._answer.calls if self._answer is not None else ())]
        return any(call.tool_id == tool_id and call.kind == "frontend" for call in calls)

    def _take_answer(self) -> list[memory_pb2.LogMessage]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        answer.close()
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer.messages

    def _step_line(self, messages: list[memory_pb2.LogMessage]) -> memory_pb2.LogLine:
        stage = DRAFT_STAGE if any(map(is_draft, messages)) else self.stage.name
        step = self.run.log.step(stage, messages, self.run.feed.seq)
        if self.ids.context_id:
            step.context_id = self.ids.context_id
        if self.ids.task_id:
            step.task_id = self.ids.task_id
        elif self.planned is not None and self.planned.plan.tasks:
            step.plan.CopyFrom(self.planned.plan.as_logged())
        if (system := self.stage.take_unlogged_system()) is not None:
            step.system = system
        return memory_pb2.LogLine(step=step)
