"""Turns of one model: it reasons, calls tools and sees their results, until it answers without a call.

A call may be required in the first turn. Limits end a model's work, but not its run.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from headrace.errors import BudgetExceeded, InvalidRequest, ToolRequired
from headrace.v1 import tools_pb2
from services.orchestrator.calls.results import is_rejection
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn.conversation import Conversation

CALL_LIMITS = frozenset({"maxModelCalls", "maxToolCalls"})


class OutOfCalls(Exception):
    """The calls are spent; only the final answer may still be requested."""


@contextmanager
def translating_call_limit() -> Generator[None]:
    try:
        yield
    except BudgetExceeded as error:
        if error.metadata.get("limit") not in CALL_LIMITS:
            raise
        raise OutOfCalls from error


async def tell_limit(scope: Scope, reason: str) -> None:
    """Notify readers of the limit that was reached; `reason` is steps or budget."""
    spending = scope.run.spending
    if reason == "steps":
        what = f"its {scope.settings.steps_max} turns with tools (maxSteps)"
    elif spending.is_out_of_calls:
        what = f"the run's {spending.model_calls_max} model calls (maxModelCalls)"
    else:
        what = f"the run's {spending.tool_calls_max} tool calls (maxToolCalls)"
    await scope.notice("LIMIT_REACHED", f"the model has used up {what}")


REPAIRS_MAX = 2

REPAIR_PROMPT = "You must call one of the tools now; answer after its result."


def choose_first_turn(conversation: Conversation) -> str:
    """Return the first turn's tool choice: the query's toolChoice, or else the agent's policy.

    Raises:
        ToolRequired: The stage has no tool to call.
        InvalidRequest: The tool that the query names is not available.
    """
    choice = conversation.run.query.tool_choice if conversation.scope is conversation.run.main else ""
    asker = "the query's toolChoice" if choice else "the agent's toolPolicy"
    choice = choice or ("required" if conversation.scope.settings.policy == "REQUIRE" else "auto")
    if choice in ("none", "auto"):
        return choice
    if not conversation.has_tools:
        raise ToolRequired(f"{asker} asks for a call, and no tool is in force; name some in the agent's toolConfig")
    if choice != "required" and choice not in conversation.scope.tools.names:
        known = ", ".join(conversation.scope.tools.names)
        raise InvalidRequest.of("toolChoice", f"{choice!r} is neither none, auto, required nor a tool; tools: {known}")
    return choice


def allows_parallel_calls(conversation: Conversation, *, by_default: bool) -> bool:
    query = conversation.run.query
    if conversation.scope is not conversation.run.main:
        return by_default
    if query.HasField("parallel_tool_calls"):
        return query.parallel_tool_calls
    return by_default or bool(query.client_tools)


async def ask_first_turn(conversation: Conversation, choice: str, *, parallel: bool) -> Answer:
    """Ask the model, with reminders if a call is required.

    Raises:
        ToolRequired: The model called no tool.
    """
    if choice in ("none", "auto"):
        return await conversation.ask_model(choice, parallel=parallel)
    for attempt in range(REPAIRS_MAX + 1):
        if attempt:
            await conversation.scope.add_user_message(REPAIR_PROMPT)
        answer = await conversation.ask_model(choice, parallel=parallel)
        if answer.calls:
            return answer
    raise ToolRequired(f"the model called no tool in {REPAIRS_MAX + 1} turns, and one was required")


TEXT_CHARS_MIN = 80
"""Minimum length of a text that counts as a repetition; shorter remarks ("Let me look.") recur naturally."""

PAIRS_MIN = 2

_WARNING = re.compile(r"\n\n\[warning: [^\]]*\]\Z")

Calls: TypeAlias = tuple[tuple[str, str], ...]
"""Names and arguments."""

Failure: TypeAlias = tuple[str, str]
"""A tool's name and result."""


class Stuck(Exception):
    """The model repeats itself, and readers have been notified; only its answer may still be requested."""


@dataclass(frozen=True, slots=True)
class _Turn:
    calls: Calls
    results: tuple[str, ...]
    text: str
    failure: Failure | None
    """The failure shared by all its calls; None if one succeeded, or if a person refused it."""


class Repetition:
    """The last turns of one loop; `execute_calls` adds to them."""

    def __init__(self, times_max: int) -> None:
        self._times_max = times_max
        self._pairs_max = max(PAIRS_MIN, times_max - 1)
        self._turns: deque[_Turn] = deque(maxlen=2 * self._pairs_max + 2)

    async def execute_calls(self, conversation: Conversation, answer: Answer, *, parallel: bool) -> None:
        """Execute an answer's calls, unless they repeat once too often.

        Raises:
            Stuck: They do, or they failed in the same way as earlier ones.
            BudgetExceeded: Calls beyond the budget were refused.
        """
        too_many, warning = self._judge(answer)
        if too_many:
            await conversation.refuse_calls(answer, f"{too_many} already; answer with what is known")
            raise await self._tell(conversation, too_many)

        def warn(call: Call, outcome: tools_pb2.ToolOutcome) -> str:
            is_last = not outcome.ok and self._count_failures((call.name, outcome.result)) + 1 == self._times_max
            return warning or (f"warning: {self._describe_failures()}; do something else" if is_last else "")

        await conversation.execute_calls(answer, parallel=parallel, warn=warn)
        self._turns.append(_read_turn(answer))
        if (failure := self._turns[-1].failure) and self._count_failures(failure) > self._times_max:
            raise await self._tell(conversation, self._describe_failures())

    def _judge(self, answer: Answer) -> tuple[str, str]:
        """Return a description of the repetition beyond the limit, and a warning for one at the limit; empty if there
        is none."""
        calls, text, times_max = _read_calls(answer), answer.text, self._times_max

        def is_news(turn: _Turn) -> bool:
            """Return whether the same calls had another result then: the model may wait for a job to end."""
            return turn.calls == calls and turn.results != self._turns[-1].results

        in_a_row = 1 + self._count(lambda turn: turn.calls == calls and not is_news(turn))
        patterns = [
            (in_a_row, times_max, f"the same call with the same arguments and result came {times_max} times in a row"),
            (
                self._count_in_turn(calls),
                2 * self._pairs_max,
                f"the same two calls came {self._pairs_max} times in turn",
            ),
        ]
        if len(text) >= TEXT_CHARS_MIN:
            times = 1 + self._count(lambda turn: turn.text == text and not is_news(turn))
            patterns.append((times, times_max, f"the same words came {times_max} times in a row"))
        warning = ""
        for length, length_max, what in patterns:
            if calls and length > length_max:
                return what, ""
            if length == length_max:
                warning = f"warning: {what}; use what is known, or do something else"
        return "", warning

    def _count(self, is_alike: Callable[[_Turn], bool]) -> int:
        return sum(1 for _ in takewhile(is_alike, reversed(self._turns)))

    def _count_in_turn(self, calls: Calls) -> int:
        """Count the turns, including this one, in which two different calls alternate with the same results."""
        turns = [*self._turns]
        alternating = 0
        for at in range(len(turns), 1, -1):
            now = calls if at == len(turns) else turns[at].calls
            is_alike = at == len(turns) or turns[at].results == turns[at - 2].results
            if now != turns[at - 2].calls or now == turns[at - 1].calls or not is_alike:
                break
            alternating += 1
        return alternating + 2 if alternating else 0

    def _count_failures(self, failure: Failure) -> int:
        return self._count(lambda turn: turn.failure == failure)

    def _describe_failures(self) -> str:
        return f"the same error came {self._times_max} times in a row"

    async def _tell(self, conversation: Conversation, what: str) -> Stuck:
        await conversation.scope.notice("MODEL_STUCK", f"{what} (maxRepeats {self._times_max}); its work ends here")
        return Stuck(what)


def _read_calls(answer: Answer) -> Calls:
    return tuple((call.name, call.arguments) for call in answer.calls)


def _read_turn(answer: Answer) -> _Turn:
    # A warning is part of the result where a taken-over run has it from the log.
    results = tuple(_WARNING.sub("", call.result) for call in answer.calls)
    failures = {
        None if call.ok or is_rejection(result) else (call.name, result)
        for call, result in zip(answer.calls, results, strict=True)
    }
    return _Turn(_read_calls(answer), results, answer.text, failures.pop() if len(failures) == 1 else None)


@dataclass(frozen=True, slots=True)
class Turns:
    """The outcome of a model's turns."""

    answer: Answer | None
    """The first answer without calls; None if a limit was reached before it."""

    limit: str = ""
    """The limit that was reached: steps, budget or stuck; empty for none."""


async def take_turns(conversation: Conversation, choice: str, *, parallel: bool) -> Turns:
    """Take turns, at most as many as the stage has steps; `choice` is the first turn's tool choice."""
    try:
        return await _take_turns(conversation, choice, parallel=parallel)
    except OutOfCalls:
        return Turns(None, "budget")
    except Stuck:
        return Turns(None, "stuck")


async def _take_turns(conversation: Conversation, choice: str, *, parallel: bool) -> Turns:
    repetition = Repetition(conversation.scope.agent.limits.max_repeats)
    for _ in range(conversation.scope.settings.steps_max):
        if conversation.run.spending.is_out_of_calls:
            raise OutOfCalls
        with translating_call_limit():
            answer = await ask_first_turn(conversation, choice, parallel=parallel)
        choice = "auto"
        if not answer.calls:
            return Turns(answer)
        with translating_call_limit():
            await repetition.execute_calls(conversation, answer, parallel=parallel)
    return Turns(None, "steps")
