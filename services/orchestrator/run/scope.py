"""One thread of work: the run itself, a task of its plan, or a sub-agent.

Its events carry its ids, so that readers can fold scopes separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from google.protobuf.message import Message

from headrace.errors import PermissionDenied
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2, tools_pb2
from services.orchestrator.agents.definition import Definition, StageSettings
from services.orchestrator.agents.definition.modes import STAGES
from services.orchestrator.agents.grants import list_unrunnable
from services.orchestrator.ids import TASK
from services.orchestrator.run import scope_parts
from services.orchestrator.run.answers.answer import Answer, is_draft
from services.orchestrator.run.answers.call import Call, result_event
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.plan import ActivePlan
from services.orchestrator.run.restore.fit import Calls, Fit
from services.orchestrator.run.scope_parts import ActiveStage, Attention, ScopeNotes
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.orchestrator.agents.grants import TenantGrants
    from services.orchestrator.run.run import Run
    from services.orchestrator.run.scope_parts import PromptContext


Delta = agent_pb2.AgentDelta

DRAFT_STAGE = "verify"
"""Stage of draft answers; models do not see its steps."""

SUBAGENTS_MAX = 50
"""Maximum concurrent sub-agents; further ones wait. maxToolCalls limits their number in the whole tree."""


@dataclass(frozen=True, slots=True)
class ScopeIds:
    """The ids of a scope; all are empty for the run itself."""

    context_id: str | None = None

    subagent_id: str | None = None
    task_id: str | None = None
    lineage: tuple[str, ...] = ()
    """Ids of the sub-agents that lead to the scope; its own comes last."""


MAIN = ScopeIds()


class Scope:
    """Owned by its run, used by one task at a time."""

    def __init__(
        self,
        run: Run,
        agent: Definition,
        settings: StageSettings,
        scope_ids: ScopeIds = MAIN,
        *,
        thoughts: list[str] | None = None,
    ) -> None:
        # weak, so that an ended run is freed at once, not by a garbage collection that pauses all streams
        self._run = ref(run)
        self.agent = agent
        self.ids = scope_ids
        self.restored = run.restored.scope(scope_ids.context_id)
        self.fit: Fit | None = None
        """Set for an operator's mode, whose code may have changed since the recording."""
        self.stage = ActiveStage(settings, self.restored.last_system)
        self.notes = ScopeNotes(self.restored.artifact_ids, thoughts)
        self.planned: ActivePlan | None = None
        self.attention = Attention()
        self.reminded: Sequence[memory_pb2.Reminder] = ()
        """Reminders sent with the current request, until its answer stores them."""
        self.tools = Toolbox()
        self.subagent_places = asyncio.Semaphore(SUBAGENTS_MAX)
        self.open_calls: dict[str, Call] = {}
        self.publish = partial(run.feed.publish, subagent_id=scope_ids.subagent_id, task_id=scope_ids.task_id)
        self._answer: Answer | None = None
        self._make_end: Callable[[memory_pb2.RunLine], Message] | None = None

    @property
    def run(self) -> Run:
        run = self._run()
        assert run is not None, "code that works for a scope has its run"
        return run

    @property
    def settings(self) -> StageSettings:
        return self.stage.settings

    @property
    def system(self) -> str:
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
        """0 for the run itself, 1 for a sub-agent that it called."""
        return len(self.ids.lineage)

    def open_subagent(self, agent: Definition, subagent_id: str) -> Scope:
        scope_ids = ScopeIds(subagent_id, subagent_id, None, (*self.ids.lineage, subagent_id))
        return self.run.scopes.add(Scope(self.run, agent, agent.primary, scope_ids))

    def open_task(self, task_id: str, settings: StageSettings) -> Scope:
        context_id = f"{TASK}{task_id}"
        if self.ids.context_id:
            context_id = f"{self.ids.context_id}.{context_id}"
        scope_ids = ScopeIds(context_id, self.ids.subagent_id, task_id, self.ids.lineage)
        scope = Scope(self.run, self.agent, settings, scope_ids, thoughts=self.notes.thoughts)
        scope.stage.prompt_context = self.stage.prompt_context
        scope.planned = self.planned
        scope.attention = self.attention.without_todos()
        scope.tools.add_results(self.tools.results)
        return self.run.scopes.add(scope)

    def begin(self, prompt_context: PromptContext) -> None:
        self.stage.prompt_context = prompt_context
        self.enter(self.agent.primary)

    def enter(self, settings: StageSettings, **values: str) -> None:
        self.stage.enter(settings, values, self.restored)

    def log_steps_as(self, stage: str) -> None:
        self.stage.name = stage

    def offer_tools(self, tools: Iterable[tools_pb2.Tool]) -> None:
        self.tools = Toolbox(tools, self.tools.results)

    async def record_start(self, start: Message, make_end: Callable[[memory_pb2.RunLine], Message]) -> None:
        """Commit the scope's first event; once readers may have it, the scope's end is published with the run's at the
        latest."""
        await self.run.state.wait_for_start()
        self._make_end = make_end
        await self.record(start)

    async def record_end(self, end: Message, *, preceding: Sequence[memory_pb2.LogLine] = ()) -> None:
        """Commit the scope's last event, in place of the one from the run's end."""
        self._make_end = None
        await self.record(end, preceding=preceding)

    async def record(
        self, *payloads: Message, preceding: Sequence[memory_pb2.LogLine] = (), is_patient: bool = False
    ) -> None:
        """Commit events together, after the `preceding` lines, then release them to readers.

        A patient commit is retried while memory is unavailable.
        """
        missing = [payload for payload in payloads if self.restored.event(payload) is None]
        if not missing:
            return
        await self.run.state.wait_for_start()
        events = [self.publish(payload, held=True) for payload in missing]
        lines = [memory_pb2.EventLine(event=event, context_id=self.context_id) for event in events]
        request = self.run.log.keep([*preceding, *(memory_pb2.LogLine(event=line) for line in lines)])
        await (self.run.log.commit_patiently(request) if is_patient else self.run.log.commit(request))

    async def notice(self, code: str, message: str) -> None:
        await self.record(agent_pb2.RunNotice(run_id=self.run.id, code=code, message=message))

    def begin_answer(self, hidden: Collection[str] = ()) -> Answer:
        """Begin an answer; `hidden` kinds, content or reasoning, do not reach readers."""
        self._answer = self._make_answer(hidden)
        return self._answer

    def _make_answer(self, hidden: Collection[str] = ()) -> Answer:
        calls_max = self.run.agent.limits.max_tool_calls_per_answer
        is_answer = self.ids == MAIN and self._gives_answer
        start = agent_pb2.ContentStart(stage=self.stage.name, is_answer=is_answer)
        return Answer(self.run.feed, self.publish, self.run.block_names, self.tools, calls_max, hidden, start)

    @property
    def _gives_answer(self) -> bool:
        """Whether the stage, as logged, gives the scope's answer; memory derives the same for history."""
        return self.stage.name not in STAGES or STAGES[self.stage.name].gives_answer

    def forget_answer(self) -> bool:
        """Discard the answer; return False, and keep it, if readers have part of it."""
        if self._answer is not None and not self._answer.is_empty:
            return False
        self._answer = None
        return True

    @property
    def has_heard(self) -> bool:
        return self._answer is not None and self._answer.has_begun

    async def retract_answer(self, reason: str) -> None:
        """Make readers drop the open answer, which will be requested again."""
        answer, self._answer = self._answer, None
        if answer is None or answer.is_empty:
            return
        await self.record(agent_pb2.AttemptReset(run_id=self.run.id, from_seq=answer.from_seq, reason=reason))

    def recalled_answer(self, calls: Calls | None = None, text: str | None = None) -> Answer | None:
        """Return the next recorded answer; None if the model must be asked.

        `calls` or `text` are those of the mode's own answer.

        Raises:
            ModeChanged: The recording differs.
        """
        if self.fit is not None:
            self.fit.check_answer(calls, text)
        pieces = self.restored.answer()
        if not pieces:
            return None
        answer = self._make_answer()
        answer.recall(pieces)
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer

    async def end_answer(self, artifacts: Iterable[agent_pb2.ArtifactPublish] = ()) -> None:
        """Commit the open answer with its `artifacts` before any of its tools runs."""
        if messages := self._take_answer():
            await self.commit(messages, artifacts)

    def hold_answer(self) -> None:
        """Hold the open answer, to be committed with the next lines, usually the run's end."""
        if messages := self._take_answer():
            self.run.log.hold([self._step_line(messages)])

    def note_answer(self, answer: Answer) -> Answer:
        self.run.spending.answers[self.ids.subagent_id] += 1
        if self._gives_answer:
            self.notes.last_text = answer.text.strip() or self.notes.last_text
        if thought := answer.hidden_reasoning:
            self.notes.thoughts.append(thought)
        return answer

    async def add_steers(self) -> None:
        steering, restored = self.run.steering, self.restored
        while steer := steering.next():
            if not restored.is_used_up and not restored.is_next(steer.text):
                return  # it came later than this turn
            steering.hear()
            await self._add_user_message(steer.text)

    async def add_user_message(self, text: str) -> None:
        """Commit a user message unless it is recorded. Raises ModeChanged if the recording differs."""
        if self.fit is not None:
            self.fit.check_message(text)
        await self._add_user_message(text)

    async def _add_user_message(self, text: str) -> None:
        if self.restored.user_message() is not None:
            return
        message = memory_pb2.LogMessage(ts=now_ms(), message=llm_pb2.Message(role="user"))
        message.message.content.add(text=text)
        await self.commit([message])

    def result(
        self, call: Call, text: str, ok: bool, media: Iterable[llm_pb2.ContentPart] = ()
    ) -> memory_pb2.LogMessage:
        self.close_call(call)
        call.result, call.ok = text, ok
        event = self.publish(result_event(call, text, ok))
        message = memory_pb2.LogMessage(ts=event.timestamp, ok=ok)
        call.keep_in(message)
        message.message.role, message.message.name, message.message.tool_call_id = "tool", call.name, call.call_id
        message.message.content.add(text=text)
        message.message.content.extend(media)
        message.events.first_seq, message.events.last_seq = call.param_seq or event.seq, event.seq
        return message

    def close_call(self, call: Call) -> None:
        del self.open_calls[call.tool_id]
        if call.kind == "frontend":
            self.run.gates.get(call.tool_id).end()

    async def commit(
        self, messages: list[memory_pb2.LogMessage], artifacts: Iterable[agent_pb2.ArtifactPublish] = ()
    ) -> None:
        await self.run.state.wait_for_start()
        step = self._step_line(messages)
        events = [self.publish(artifact, held=True) for artifact in artifacts]
        lines = [memory_pb2.EventLine(event=event, context_id=self.context_id) for event in events]
        await self.run.log.append(
            [step, *self._insight_lines(messages), *(memory_pb2.LogLine(event=line) for line in lines)]
        )
        for event in events:
            self.notes.artifact_ids[event.artifact_publish.artifact_id] = None

    def _insight_lines(self, messages: Sequence[memory_pb2.LogMessage]) -> list[memory_pb2.LogLine]:
        recap = self.agent.memory.recap
        results = [message.message for message in messages if message.message.role == "tool" and message.ok]
        if not recap.enabled or recap.insights == "llm":
            return []  # a model writes them once they are needed
        return [scope_parts.insight_line(self.context_id, result, scope_parts.preview(result)) for result in results]

    def close(self, open_result: str) -> list[memory_pb2.LogLine]:
        """Give each call without a result `open_result`; return the lines for the log."""
        messages = self._take_answer()
        messages += [self.result(call, open_result, ok=False) for call in [*self.open_calls.values()]]
        return [self._step_line(messages)] if messages else []

    def end(self, line: memory_pb2.RunLine) -> list[memory_pb2.LogLine]:
        """Publish the end announced with `record_start`; return its line."""
        if self._make_end is None:
            return []
        event = self.publish(self._make_end(line))
        return [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=self.context_id))]

    def find_waiting_call(self, tool_id: str) -> Call | None:
        calls = [*self.open_calls.values(), *(self._answer.calls if self._answer is not None else ())]
        return next((call for call in calls if call.tool_id == tool_id and call.kind == "frontend"), None)

    def _take_answer(self) -> list[memory_pb2.LogMessage]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        answer.close()
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer.messages

    def _step_line(self, messages: list[memory_pb2.LogMessage]) -> memory_pb2.LogLine:
        stage = DRAFT_STAGE if any(map(is_draft, messages)) else self.stage.name
        if self.fit is not None:
            self.fit.said_live += sum(message.message.role != "tool" for message in messages)
        step = self.run.log.step(stage, messages, self.run.feed.seq)
        if any(message.message.role == "assistant" for message in messages):
            step.reminders.extend(self.reminded)
            self.reminded = ()
        if self.ids.context_id:
            step.context_id = self.ids.context_id
        if self.ids.task_id:
            step.task_id = self.ids.task_id
        elif self.planned is not None and self.planned.plan.tasks:
            step.plan.CopyFrom(self.planned.plan.as_logged())
        if (system := self.stage.take_unlogged_system()) is not None:
            step.system = system
        return memory_pb2.LogLine(step=step)


def find_grants(scope: Scope) -> TenantGrants | None:
    """Return the grants of the scope's agent; None: it needs none."""
    return scope.run.services.grants.find_for(scope.agent)


def check_turn(scope: Scope) -> None:
    """Raise PermissionDenied if the agent's models or mode are no longer granted."""
    grants = find_grants(scope)
    if grants is not None and (found := list_unrunnable(scope.agent, grants)):
        raise PermissionDenied(f"agent {scope.agent.key!r} may not continue: {found[0]}", agentKey=scope.agent.key)


def list_callable_agents(scope: Scope) -> list[Definition]:
    """List the agents that the scope may call by name: an operator's agent must not call a tenant's."""
    grants, tenant = find_grants(scope), scope.agent.tenant

    def may_call(agent: Definition) -> bool:
        if agent.tenant:
            return agent.tenant == tenant
        return grants is None or grants.allows_subagent(agent.key)

    return [agent for agent in scope.run.services.agents.values() if may_call(agent)]
