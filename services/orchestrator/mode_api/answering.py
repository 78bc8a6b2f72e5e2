"""The steps of an operator's mode: questions to its model, its own calls and texts, and the run's answer.

The log records the mode's own calls and texts like a model's answer, so that approvals, one-time effects, replay and
cancellation apply to them equally.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.errors import BudgetExceeded, NoAnswer
from headrace.v1 import llm_pb2, memory_pb2, tools_pb2
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.agents.version import TIERS
from services.orchestrator.ids import derived_id
from services.orchestrator.mode_api.final_answer import NO_TOOLS, ask_for_final_answer
from services.orchestrator.mode_api.turns import take_turns, tell_limit
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.restore.fit import Calls, Fit, Kept
from services.orchestrator.run.restore.restored_run import KEPT_STAGE, MADE
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn import output_form
from services.orchestrator.turn.conversation import Conversation
from services.runtime.clock import now_ms

STEPS_LIMIT = "customMaxSteps"
"""Name of the limit in errors."""


class StepCount:
    """Counts the steps of all scopes of a run."""

    def __init__(self, steps_max: int) -> None:
        self._steps_max = steps_max
        self._taken = 0

    def take(self) -> None:
        """Count one step. Raises BudgetExceeded if the agent's limit is reached."""
        if self._taken >= self._steps_max:
            message = f"the mode has taken its {self._steps_max} steps (custom.maxSteps)"
            raise BudgetExceeded(message, limit=STEPS_LIMIT, steps=self._taken)
        self._taken += 1


def make_fit(scope: Scope) -> Fit:
    ids, run = scope.ids, scope.run
    where = f"task {ids.task_id}" if ids.task_id else f"sub-agent {ids.subagent_id}" if ids.subagent_id else "the run"

    def list_unopened() -> list[str]:
        return [name for name in run.restored.list_tasks(scope.context_id) if not run.scopes.had(name)]

    return Fit(scope.restored, where, list_unopened)


async def keep(scope: Scope, step: int, name: str, kept: Kept) -> None:
    """Commit a step's value or error; no message contains it and no model sees it."""
    run = scope.run
    await run.state.wait_for_start()
    message = memory_pb2.LogMessage(ts=now_ms(), message=llm_pb2.Message(role="user"))
    message.message.content.add(text=kept.dump(step, name))
    line = run.log.step(KEPT_STAGE, [message], run.feed.seq)
    if scope.context_id is not None:
        line.context_id = scope.context_id
    if scope.ids.task_id is not None:
        line.task_id = scope.ids.task_id
    await run.log.append([memory_pb2.LogLine(step=line)])


CALLS_MAX = 64
"""Maximum calls at a time; a model's answer may have more."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The end of a call."""

    ok: bool
    """Whether the tool succeeded."""

    text: str
    """The result's text, as a model would see it."""

    def json(self) -> Any:
        """Parse the result's first line as JSON. Raises ValueError if it is not."""
        return orjson.loads(self.text.partition("\n")[0])


def dump_calls(wanted: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Return names and arguments, serialized as JSON.

    Raises:
        TypeError: The arguments cannot be represented in JSON.
        ValueError: There are no calls, or too many at a time.
    """
    if not 0 < len(wanted) <= CALLS_MAX:
        raise ValueError(f"1 to {CALLS_MAX} calls at a time, not {len(wanted)}")
    return [(name, orjson.dumps(arguments).decode()) for name, arguments in wanted]


async def run_calls(conversation: Conversation, calls: Calls, step: int) -> list[CallResult]:
    """Run the calls concurrently, each once. Raises BudgetExceeded if they exceed the run's remaining calls."""
    answer = await _make_calls(conversation.scope, calls, step)
    await conversation.execute_calls(answer, parallel=True)
    return [CallResult(call.ok, call.result) for call in answer.calls]


def read_agent_result(result: CallResult) -> CallResult:
    """Return a sub-agent's answer, or its error, from the result of its call."""
    try:
        fields = result.json()
        return CallResult(result.ok, fields["result"] if result.ok else fields["error"])
    except (ValueError, KeyError, TypeError):
        return result


async def _make_calls(scope: Scope, calls: Calls, step: int) -> Answer:
    """Return the committed answer with these calls; none of them has run yet."""
    if recalled := scope.recalled_answer(calls):
        return recalled
    await scope.run.state.wait_for_start()  # nothing is said before the run's own first events
    answer = scope.begin_answer()
    for index, (name, arguments) in enumerate(calls):
        call_id = f"mode_{derived_id(scope.run.id, scope.context_id or '', str(step), str(index))}"
        fragment = llm_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments)
        answer.take(llm_pb2.LlmDelta(tool_call=fragment).SerializeToString())
    return await _end(scope, answer)


async def say_text(scope: Scope, text: str) -> Answer:
    """Return the committed answer with this text, which readers have received."""
    if recalled := scope.recalled_answer(text=text):
        return recalled
    await scope.run.state.wait_for_start()
    answer = scope.begin_answer()
    answer.take(llm_pb2.LlmDelta(content=text).SerializeToString())
    return await _end(scope, answer)


async def _end(scope: Scope, answer: Answer) -> Answer:
    answer.take(llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=MADE)).SerializeToString())
    await scope.end_answer()
    return answer


WORK, ANSWER = "work", "custom"
"""Stages: work, which is not part of the answer, and the answer."""


async def ask(conversation: Conversation, text: str, tools: str, *, parallel: bool) -> str:
    if text:
        await conversation.scope.add_user_message(text)
    may_call = tools != "none" and conversation.has_tools and not is_calling_refused(conversation)
    turns = await take_turns(conversation, tools, parallel=parallel) if may_call else None
    answer = None if turns is None else turns.answer
    if answer is None:
        if turns is not None and turns.limit in ("steps", "budget"):
            await tell_limit(conversation.scope, turns.limit)
        answer = await conversation.ask_model("none")
        await conversation.refuse_calls(answer, NO_TOOLS)
    if not answer.text.strip():
        raise NoAnswer("the model ended without saying anything; ask again or another model")
    conversation.scope.notes.last_said = answer.text.strip()
    return answer.text


def is_calling_refused(conversation: Conversation) -> bool:
    """Return whether the query's toolChoice is none; that applies to all of the run except its sub-agents."""
    return conversation.run.query.tool_choice == "none" and not conversation.scope.depth


async def give_answer(conversation: Conversation, text: str) -> str:
    """Stream the run's answer; return the finish reason."""
    scope = conversation.scope
    _check_may_answer(conversation)
    scope.enter(scope.agent.stage_settings(ANSWER))
    if text:
        await scope.add_user_message(text)
    reason = await ask_for_final_answer(conversation)
    scope.notes.last_said = scope.notes.last_text
    scope.enter(scope.agent.stage_settings(WORK))
    return reason


async def give_text(conversation: Conversation, text: str) -> str:
    """Use `text` as the run's answer; return the finish reason.

    Raises:
        NoAnswer: The text is empty.
        OutputMismatch: The text does not match the answer's form.
    """
    scope = conversation.scope
    _check_may_answer(conversation)
    if not text.strip():
        raise NoAnswer("the mode returned an empty text")
    scope.enter(scope.agent.stage_settings(ANSWER))
    if (form := output_form.find_form(scope)) is not None:
        scope.notes.output = form.read_output(text).require_json()
    await say_text(scope, text)
    scope.notes.last_text = scope.notes.last_said = text.strip()
    scope.enter(scope.agent.stage_settings(WORK))
    return "stop"


def select_tools(tools: Iterable[tools_pb2.Tool], settings: StageSettings) -> list[tools_pb2.Tool]:
    """Return the run's tools that a stage lists or that every agent has."""
    if not settings.may_use_tools:
        return []
    listed = {name.casefold() for name in settings.tools}
    tiers = {tier for name, tier in TIERS.items() if name in listed}
    return [
        tool
        for tool in tools
        if tool.name.casefold() in listed or tool.tier in tiers or tool.always_available or tool.kind == "own"
    ]


def _check_may_answer(conversation: Conversation) -> None:
    if conversation.scope.ids.task_id is not None:
        raise RuntimeError("a task cannot answer for the run: use ask, and return the result")
