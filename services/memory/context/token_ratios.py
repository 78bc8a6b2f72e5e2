"""Ratios of a model's tokens to our counts, learned from reported usage if the encoding is unknown.

The answer's line stores what was learned, for the time after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from services.memory.log.lines import Learned, Step
from services.runtime.tokens import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.v1 import memory_pb2
    from services.memory.log.lines import Line

RATIO_MIN, RATIO_MAX = 0.5, 4.0
"""Bounds of a ratio, lest false usage reports switch compaction off, or on for good."""

RATIO_INERTIA = 0.8
"""Weight of the old ratio in a new one: single requests vary with their language."""

MODELS_MAX = 1000
"""Models whose ratio is kept; their names come from requests."""

REQUESTS_MAX = 10_000
"""Requests whose usage may still be reported."""

LINES_MAX = 1000
"""Lines from a chat's end searched for a ratio learned before a restart."""


class TokenRatios:
    """The ratios of all models, used on the event loop only."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, float] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str | None], tuple[str, int]] = OrderedDict()

    def get_ratio(self, model: str, log: Sequence[Line]) -> float:
        if (known := self._ratios.get(model)) is not None:
            return known
        for line in islice(reversed(log), LINES_MAX):
            if isinstance(line, Step) and line.learned is not None and line.learned.model == model:
                self._store_ratio(model, _clamp_ratio(line.learned.ratio))
                return self._ratios[model]
        return count.ESTIMATE_RATIO

    def note_request(self, run_id: str, context_id: str | None, model: str, count: int) -> None:
        """Note a request of `count` unscaled tokens, by a context of a run."""
        self._asked[run_id, context_id] = (model, count)
        self._asked.move_to_end((run_id, context_id))
        if len(self._asked) > REQUESTS_MAX:
            self._asked.popitem(last=False)

    def learn_ratios(self, request: memory_pb2.AppendRequest) -> dict[int, Learned]:
        """Learn from the usage in `request`, and return the ratios by index of the line."""
        found: dict[int, Learned] = {}
        for index, line in enumerate(request.lines):
            if line.WhichOneof("line") == "step":
                reported = (message.usage for message in line.step.messages if message.HasField("usage"))
                input_tokens = next((usage.input_tokens for usage in reported if not usage.estimated), 0)
                if taught := self._learn_usage(request.run_id, line.step.context_id or None, input_tokens):
                    found[index] = taught
        return found

    def _learn_usage(self, run_id: str, context_id: str | None, input_tokens: int) -> Learned | None:
        model, count = self._asked.get((run_id, context_id), ("", 0))
        if not count or not input_tokens:
            return None
        del self._asked[run_id, context_id]
        ratio = _clamp_ratio(input_tokens / count)
        before = self._ratios.get(model)
        self._store_ratio(model, ratio if before is None else RATIO_INERTIA * before + (1 - RATIO_INERTIA) * ratio)
        return Learned(model, round(self._ratios[model], 4))

    def _store_ratio(self, model: str, ratio: float) -> None:
        self._ratios[model] = ratio
        self._ratios.move_to_end(model)
        if len(self._ratios) > MODELS_MAX:
            self._ratios.popitem(last=False)


def _clamp_ratio(ratio: float) -> float:
    return min(max(ratio, RATIO_MIN), RATIO_MAX)
