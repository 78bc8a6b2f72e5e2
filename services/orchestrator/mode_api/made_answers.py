"""Answers that no model gave: calls that a mode makes itself, and texts that it says.

They stand in the log as a model's would, so that all that holds for calls holds for these: approvals, effects that
happen once, replay, cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.v1 import llm_pb2
from services.orchestrator.ids import derived_id
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.replay.fit import Calls
from services.orchestrator.run.replay.replay import MADE
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn.conversation import Conversation

CALLS_MAX = 64
"""Calls at a time: less than an answer of a model may have."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call has ended."""

    ok: bool
    """Whether the tool did what it was to do."""

    text: str
    """Its result, as a model would see it."""

    def json(self) -> Any:
        """Return the result's first line read as JSON. Raises ValueError where it is none."""
        return orjson.loads(self.text.partition("\n")[0])


def dump_calls(wanted: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Return names and arguments as JSON.

    Raises:
        TypeError: JSON does not have the arguments.
        ValueError: There are no calls, or too many at a time.
    """
    if not 0 < len(wanted) <= CALLS_MAX:
        raise ValueError(f"1 to {CALLS_MAX} calls at a time, not {len(wanted)}")
    return [(name, orjson.dumps(arguments).decode()) for name, arguments in wanted]


async def run_calls(talk: Conversation, calls: Calls, step: int) -> list[CallResult]:
    """Run calls at the same time, each once. Raises BudgetExceeded where they are more than the run has left."""
    answer = await _make_calls(talk.scope, calls, step)
    await talk.execute_calls(answer, parallel=True)
    return [CallResult(call.ok, call.result) for call in answer.calls]


def read_agent_result(result: CallResult) -> CallResult:
    """Return what a sub-agent said, or why it failed, out of the result of its call."""
    try:
        fields = result.json()
        return CallResult(result.ok, fields["result"] if result.ok else fields["error"])
    except (ValueError, KeyError, TypeError):
        return result


async def _make_calls(scope: Scope, calls: Calls, step: int) -> Answer:
    """Return the committed answer with these calls, none of which has run yet."""
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
    """Return the committed answer with this text, which readers have then."""
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
