"""A cache of answers that stay valid for some seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from services.orchestrator.tape.tape import TAPE
from services.runtime.clock import monotonic_s

K = TypeVar("K")
V = TypeVar("V")

ANSWERS_MAX = 1000
"""Most provider files have fewer models."""


class TtlCache(Generic[K, V]):
    """Callers must not change cached answers."""

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._answers: dict[K, tuple[float, V]] = {}

    def is_known(self, question: K) -> bool:
        """Return whether `get_or_ask` has not to wait now."""
        known = self._answers.get(question)
        # A run that is recorded asks itself: its recording is to have all that it knows.
        return TAPE.get() is None and known is not None and monotonic_s() - known[0] < self._age_s

    def find_last(self, question: K) -> V | None:
        """Return the last answer, however old; None if there was none."""
        known = self._answers.get(question)
        return known and known[1]

    async def get_or_ask(self, question: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return a cached or new answer; an empty one is not cached, as the missing may be on its way."""
        if self.is_known(question):
            return self._answers[question][1]
        answer = await ask()
        self._answers.pop(question, None)
        if answer:
            self._answers[question] = monotonic_s(), answer
        if len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        return answer
