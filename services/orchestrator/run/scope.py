"""One line of thought of a run: the run itself, a task of its plan, or a sub-agent.

A scope has its own context in memory, its own stage and system message, one open answer at a time and the calls that
wait for results. What it publishes carries its ids, so that readers can fold scopes apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.run import insights
from services.orchestrator.run.answers.answer import Answer, is_draft
from services.orchestrator.run.answers.call import Call, result_event
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.attention import Attention

if TYPE_CHECKING:
    from services.orchestrator.run.plan.active_plan import Planned
    from services.orchestrator.run.prompt_context import PromptContext
    from services.orchestrator.run.run import Run

Delta = agent_pb2.AgentDelta

DRAFT_STAGE = "verify"
"""Of answers that are checked before readers get one; no model is told of its steps."""

SUBAGENTS_MAX = 50
"""Sub-agents of one scope that work at the same time; further ones wait. Of the tree, maxToolCalls limits how many
there are."""


class Scope:
    """Used by one task at a time; owned by its run, which closes it at the latest when it ends."""

    def __init__(
        self,
        run: Run,
        settings: StageSettings,
        *,
        context_id: str | None = None,
        subagent_id: str | None = None,
        task_id: str | None = None,
    ) -> None:
        self.run = run
        self.agent = run.agent
        """Whose settings these are: the run's, or a sub-agent's."""
        self.lineage: tuple[str, ...] = ()
        """Ids of the sub-agents that lead to it, its own last; none for the run itself."""
        self.said = ""
        """What its model said last."""
        self.returned: dict[str, tuple[str, str]] = {}
        """Tasks of sub-agents that have come back since its last answer, and their results, by tool id."""
        self.places = asyncio.Semaphore(SUBAGENTS_MAX)
        """For its sub-agents at a time."""
        self.settings = settings
        """Prompt, model and tools in force; a run goes from stage to stage."""
        self.stage = settings.stage
        """As its steps are logged."""
        self.context_id = context_id
        """In memory; None: the run's own."""
        self.subagent_id = subagent_id
        self.task_id = task_id
        self.system = ""
        """The system message, fixed for a stage."""
        self.brief: PromptContext | None = None
        """What system messages are made from; None: nothing is asked of a model yet."""
        self.planned: Planned | None = None
        """The plan that the scope made, or is part of."""
        self.last_event: Callable[[memory_pb2.RunLine], tuple[str, dict[str, object]]] | None = None
        """How readers learn that what the scope stands for (a task) ends with its run; None: it does not, or has."""
        self.attention = Attention()
        """What its model is reminded of."""
        self.tools = Toolbox()
        """What its model may call."""
        self.open_calls: dict[str, Call] = {}
        """Calls without a result, by tool id."""
        self.send = self._send_inside if subagent_id or task_id else run.feed.publish
        """Number an event and pass it on (Feed.publish), with this scope's ids."""
        self.thoughts: list[str] = []
        """Reasoning that readers get a summary of; the tasks of a plan add theirs."""
        self.results_without_insight: list[memory_pb2.LogMessage] = []
        """Results of tools that a model is to write an insight about, before the next turn."""
        self.recording = run.recording.scope(context_id)
        """What an earlier owner of the run has done here: it is gone through again first."""
        self.artifact_ids = dict.fromkeys(self.recording.artifact_ids)
        """What its tools have made, each once, in order."""
        self._answer: Answer | None = None
        self._logged_system = self.recording.last_system

    @property
    def depth(self) -> int:
        """1 for a sub-agent that the run has called, 0 for the run itself."""
        return len(self.lineage)

    def enter(self, settings: StageSettings, **values: str) -> None:
        """Go on to a stage: its settings are in force, its prompt with `values` filled in is the system message."""
        assert self.brief is not None, "a scope is briefed before its first stage"
        self.settings, self.stage = settings, settings.stage
        recorded = "" if self.recording.is_used_up else self.recording.systems.get(self.stage, "")
        self.system = recorded or self.brief.system(settings, values)

    def publish(self, kind: str, **fields: object) -> Delta:
        """Publish an event."""
        delta = _event(kind, fields)
        self.send(kind, delta)
        return delta

    async def record(self, kind: str, *, behind: Sequence[memory_pb2.LogLine] = (), **fields: object) -> Delta:
        """Publish an event that no other line of the log implies: it is on disk before any reader has it, together with
        the lines `behind` which it stands.
        """
        event = _event(kind, fields)
        if told := self.recording.event(kind, event):
            return told
        await self.run.begun.wait()
        seq = self.send(kind, event, held=True)
        line = memory_pb2.EventLine(event=event, context_id=self.context_id)
        await self.run.log.append([*behind, memory_pb2.LogLine(event=line)])
        self.run.feed.release(seq)
        return event

    async def notice(self, code: str, message: str) -> None:
        """Tell the user something that ends nothing."""
        await self.record("run_notice", run_id=self.run.id, code=code, message=message)

    def begin_answer(self, hidden: Collection[str] = ()) -> Answer:
        """A new model answer; it is the scope's open one until `end_answer` or `close`. Readers get nothing of what is
        `hidden`: content, reasoning.
        """
        self._answer = Answer(self.run.feed, self.send, self.run.names, self.tools, hidden)
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
        await self.record("attempt_reset", run_id=self.run.id, from_seq=answer.from_seq, reason=reason)

    def recalled_answer(self) -> Answer | None:
        """The next answer, where the log has it already; None: the model is to be asked."""
        pieces = self.recording.answer()
        if not pieces:
            return None
        answer = Answer(self.run.feed, self.send, self.run.names, self.tools)
        answer.recall(pieces)
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer

    async def end_answer(self) -> None:
        """Close the open answer and commit its pieces, before any of its tools runs."""
        if messages := self._take_answer():
            await self.commit(messages)

    def hear(self, answer: Answer) -> Answer:
        """Note what its model has said."""
        self.run.turns[self.subagent_id] += 1
        self.said = answer.text.strip() or self.said
        if thought := answer.hidden_reasoning:
            self.thoughts.append(thought)
        return answer

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
        kind, event = result_event(call, text, ok)
        self.send(kind, event)
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
        await self.run.begun.wait()
        await self.run.log.append([self._step_line(messages), *insights.noted(self, messages)])

    def close(self, open_result: str) -> list[memory_pb2.LogLine]:
        """Close what is open, give each call without a result `open_result`, and return the lines for the log."""
        messages = self._take_answer()
        messages += [self.result(call, open_result, ok=False) for call in [*self.open_calls.values()]]
        return [self._step_line(messages)] if messages else []

    def end(self, line: memory_pb2.RunLine) -> list[memory_pb2.LogLine]:
        """Say that what the scope stands for ends with its run, which `line` ends; the lines for the log."""
        if self.last_event is None:
            return []
        kind, fields = self.last_event(line)
        event = self.publish(kind, **fields)
        return [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=self.context_id))]

    def calls_waiting_for(self, tool_id: str) -> bool:
        """Whether a frontend call with this id has been announced and has no result yet."""
        calls = [*self.open_calls.values(), *(self._answer.calls if self._answer is not None else ())]
        return any(call.tool_id == tool_id and call.kind == "frontend" for call in calls)

    def _send_inside(self, kind: str, delta: Delta, *, held: bool = False) -> int:
        if self.subagent_id:
            delta.subagent_id = self.subagent_id
        if self.task_id:
            delta.task_id = self.task_id
        return self.run.feed.publish(kind, delta, held=held)

    def _take_answer(self) -> list[memory_pb2.LogMessage]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        answer.close()
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer.messages

    def _step_line(self, messages: list[memory_pb2.LogMessage]) -> memory_pb2.LogLine:
        stage = DRAFT_STAGE if any(map(is_draft, messages)) else self.stage
        step = self.run.log.step(stage, messages, self.run.feed.seq)
        if self.context_id:
            step.context_id = self.context_id
        if self.task_id:
            step.task_id = self.task_id
        elif self.planned is not None and self.planned.plan.tasks:
            step.plan.CopyFrom(self.planned.plan.as_logged())
        if self.system != self._logged_system:
            step.system = self._logged_system = self.system
        return memory_pb2.LogLine(step=step)


def _event(kind: str, fields: dict[str, object]) -> Delta:
    payload: Any = {kind: fields}
    return Delta(**payload)
