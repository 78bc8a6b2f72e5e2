"""Notices that a model goes round in circles: it is told once, and one repetition more ends its work."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.answers.call import Call
from services.orchestrator.turn.conversation import Conversation

TEXT_CHARS_MIN = 80
"""Shorter remarks ("Let me look.") may well come again and again."""

PAIRS_MIN = 2

_WARNING = re.compile(r"\n\n\[warning: [^\]]*\]\Z")

Calls: TypeAlias = tuple[tuple[str, str], ...]
"""Names and arguments."""

Failure: TypeAlias = tuple[str, str]
"""A tool's name and result."""


class Stuck(Exception):
    """The model repeats itself, which readers have been told; only its answer is still asked for."""


@dataclass(frozen=True, slots=True)
class _Turn:
    calls: Calls
    results: tuple[str, ...]
    text: str
    failure: Failure | None
    """How all of its calls failed; None if one did not, or if a person refused it."""


class Repetition:
    """The last turns of one loop, which `execute_calls` adds to."""

    def __init__(self, times_max: int) -> None:
        self._times_max = times_max
        self._pairs_max = max(PAIRS_MIN, times_max - 1)
        self._turns: deque[_Turn] = deque(maxlen=2 * self._pairs_max + 2)

    async def execute_calls(self, talk: Conversation, answer: Answer, *, parallel: bool) -> None:
        """Execute an answer's calls, unless they are one repetition too many.

        Raises:
            Stuck: They are, or failed as those before them.
            BudgetExceeded: Calls beyond the budget were refused.
        """
        too_many, warning = self._judge(answer)
        if too_many:
            await talk.refuse_calls(answer, f"{too_many} already; answer with what is known")
            raise await self._tell(talk, too_many)

        def warn(call: Call, outcome: tools_pb2.ToolOutcome) -> str:
            is_last = not outcome.ok and self._count_failures((call.name, outcome.result)) + 1 == self._times_max
            return warning or (f"warning: {self._describe_failures()}; do something else" if is_last else "")

        await talk.execute_calls(answer, parallel=parallel, warn=warn)
        self._turns.append(_read_turn(answer))
        if (failure := self._turns[-1].failure) and self._count_failures(failure) > self._times_max:
            raise await self._tell(talk, self._describe_failures())

    def _judge(self, answer: Answer) -> tuple[str, str]:
        """Return what comes once too often, and a warning where it is at the limit; empty texts otherwise."""
        calls, text, times_max = _read_calls(answer), answer.text, self._times_max
        in_a_row = 1 + self._count(lambda turn: turn.calls == calls)
        patterns = [
            (in_a_row, times_max, f"the same call with the same arguments came {times_max} times in a row"),
            (
                self._count_in_turn(calls),
                2 * self._pairs_max,
                f"the same two calls came {self._pairs_max} times in turn",
            ),
        ]
        if len(text) >= TEXT_CHARS_MIN:
            said = 1 + self._count(lambda turn: turn.text == text)
            patterns.append((said, times_max, f"the same words came {times_max} times in a row"))
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
        """Count the turns, this one included, in which two different calls alternate with the same results."""
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

    async def _tell(self, talk: Conversation, what: str) -> Stuck:
        await talk.scope.notice("MODEL_STUCK", f"{what} (maxRepeats {self._times_max}); its work ends here")
        return Stuck(what)


def _read_calls(answer: Answer) -> Calls:
    return tuple((call.name, call.arguments) for call in answer.calls)


def _read_turn(answer: Answer) -> _Turn:
    # A warning is part of the result where a taken-over run has it from the log.
    results = tuple(_WARNING.sub("", call.result) for call in answer.calls)
    failures = {
        None if call.ok or outcomes.is_rejection(result) else (call.name, result)
        for call, result in zip(answer.calls, results, strict=True)
    }
    return _Turn(_read_calls(answer), results, answer.text, failures.pop() if len(failures) == 1 else None)
