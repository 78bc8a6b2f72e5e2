"""Ratios of a model's tokens to our counts, learned from plausible reported usage.

The answer's line stores the learned ratio, so that it survives a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from services.memory.log.lines import Learned, Step
from services.runtime.tokens import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.v1 import memory_pb2
    from services.memory.log.lines import Line

RATIO_MIN = 1.0
"""Minimum ratio, so that a request within our own count never exceeds the window, however little usage is reported."""

PLAUSIBLE = (0.5, 4.0)
"""Plausible ratios; usage outside of them does not describe the request, and is ignored."""

PLAUSIBLE_IF_KNOWN = (0.8, 1.5)
"""Plausible ratios for a known encoding, where only the provider's additions are unknown."""

COUNT_MIN = 200
"""Minimum count of a request to learn from; in shorter ones the provider's fixed additions dominate."""

RATIO_INERTIA = 0.8
"""Weight of the old ratio in a new one; single requests vary with their language."""

MODELS_MAX = 1000
"""Maximum models with a ratio; their names come from requests."""

REQUESTS_MAX = 10_000
"""Maximum requests with usage still to be reported."""

LINES_MAX = 1000
"""Lines from a chat's end searched for a ratio learned before a restart."""


class ModelKey(NamedTuple):
    """A model as seen by one tenant; another tenant's reports do not affect it."""

    tenant: str
    provider_key: str
    model: str

    @property
    def name(self) -> str:
        """The model's name in a chat's log, which implies the tenant."""
        return f"{self.provider_key}/{self.model}"


class CountedRequest(NamedTuple):
    key: ModelKey
    tokens: int
    """Its unscaled tokens."""
    is_exact: bool
    """Whether the model's exact encoding is known."""


class TokenRatios:
    """The ratios of all models, used on the event loop only."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[ModelKey, float] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str | None], CountedRequest] = OrderedDict()

    def get_ratio(self, key: ModelKey, log: Sequence[Line], *, is_exact: bool) -> float:
        if (known := self._ratios.get(key)) is not None:
            return known
        for line in islice(reversed(log), LINES_MAX):
            if isinstance(line, Step) and line.learned is not None and line.learned.model == key.name:
                if _is_plausible(line.learned.ratio, is_exact=is_exact):
                    self._store_ratio(key, line.learned.ratio)
                    return self._ratios[key]
                break
        return RATIO_MIN if is_exact else count.ESTIMATE_RATIO

    def note_request(self, run_id: str, context_id: str | None, asked: CountedRequest) -> None:
        self._asked[run_id, context_id] = asked
        self._asked.move_to_end((run_id, context_id))
        if len(self._asked) > REQUESTS_MAX:
            self._asked.popitem(last=False)

    def learn_ratios(self, request: memory_pb2.AppendRequest) -> dict[int, Learned]:
        """Learn from the usage in `request`; return the ratios by line index."""
        found: dict[int, Learned] = {}
        for index, line in enumerate(request.lines):
            if line.WhichOneof("line") == "step":
                reported = (message.usage for message in line.step.messages if message.HasField("usage"))
                input_tokens = next((usage.input_tokens for usage in reported if not usage.estimated), 0)
                if taught := self._learn_usage(request.run_id, line.step.context_id or None, input_tokens):
                    found[index] = taught
        return found

    def _learn_usage(self, run_id: str, context_id: str | None, input_tokens: int) -> Learned | None:
        asked = self._asked.get((run_id, context_id))
        if asked is None or not input_tokens:
            return None
        del self._asked[run_id, context_id]
        if asked.tokens < COUNT_MIN or not _is_plausible(input_tokens / asked.tokens, is_exact=asked.is_exact):
            return None
        ratio, key = input_tokens / asked.tokens, asked.key
        before = self._ratios.get(key, RATIO_MIN if asked.is_exact else None)
        self._store_ratio(key, ratio if before is None else RATIO_INERTIA * before + (1 - RATIO_INERTIA) * ratio)
        return Learned(key.name, round(self._ratios[key], 4))

    def _store_ratio(self, key: ModelKey, ratio: float) -> None:
        self._ratios[key] = max(ratio, RATIO_MIN)
        self._ratios.move_to_end(key)
        if len(self._ratios) > MODELS_MAX:
            self._ratios.popitem(last=False)


def _is_plausible(ratio: float, *, is_exact: bool) -> bool:
    low, high = PLAUSIBLE_IF_KNOWN if is_exact else PLAUSIBLE
    return low <= ratio <= high
