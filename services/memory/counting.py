"""What messages cost in tokens: each counted once, its count kept beside the chat as long as the chat is in memory.

Exact for OpenAI's encodings. Other models are counted in one of them, times a ratio that their reported usage teaches.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from headrace import model_table, tokens
from headrace.v1 import llm_pb2

if TYPE_CHECKING:
    from headrace.encodings import EncodingName
    from services.memory.chat import Chat
    from services.memory.dialogue import Position, Said, Unit

RATIO_MIN, RATIO_MAX = 0.5, 4.0
"""Bounds of what a ratio may be: a provider that reports nonsense must not switch compaction off, or on for good."""

RATIO_INERTIA = 0.8
"""Weight of what was known before in a new ratio: single requests vary with their language."""

MODELS_MAX = 1000
"""Models whose ratio is kept: their names come from requests."""

REQUESTS_MAX = 10_000
"""Requests whose usage may still be reported."""

FRAMES_MAX = 128
"""Systems with their tools whose count is kept: some 30 KB each, the same at every turn of a run."""


class _Key(NamedTuple):
    encoding: EncodingName
    at: Position
    pieces: int
    form: str


_Counts: TypeAlias = "dict[_Key, int]"


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts in the encoding of one model. May be used in any thread: a count is the same whoever makes it."""

    encoding: EncodingName
    ratio: float
    """What a token of that encoding is in tokens of the model."""
    known: _Counts

    def text(self, text: str) -> int:
        """Of text that is part of a message."""
        return tokens.count_text(text, self.encoding)

    def message(self, message: llm_pb2.Message) -> int:
        """Of a message that is in no log."""
        return tokens.count_message(message, self.encoding)

    def said(self, said: Said) -> int:
        if said.at is None:
            return self.message(said.message)
        key = _Key(self.encoding, said.at, said.pieces, said.form)
        count = self.known.get(key)
        if count is None:
            count = self.known[key] = self.message(said.message)
        return count

    def unit(self, unit: Unit) -> int:
        return sum(map(self.said, unit.all()))

    def units(self, units: Iterable[Unit]) -> int:
        return sum(map(self.unit, units))

    def frame(self, system: str, schemas: Sequence[llm_pb2.ToolSchema]) -> int:
        """Of a request beside its units and reminder: its list, its system message, its tools."""
        tools = tuple(schema.SerializeToString(deterministic=True) for schema in schemas)
        return _frame_tokens(system, tools, self.encoding)

    def reminder(self, text: str, units: Sequence[Unit]) -> int:
        """Of a reminder behind `units`: a part of their last message where that is a user's, else a message."""
        if not text:
            return 0
        if units and units[-1].role == "user":
            return self.text(text)
        return self.message(llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text=text)]))

    def scaled(self, count: int) -> int:
        """`count` in the model's own tokens, as far as we know."""
        return math.ceil(count * self.ratio)

    def unscaled(self, tokens_max: int) -> int:
        """The greatest count that is not more than `tokens_max` of the model's own tokens."""
        return math.floor(tokens_max / self.ratio)


@lru_cache(maxsize=FRAMES_MAX)
def _frame_tokens(system: str, tools: tuple[bytes, ...], encoding: EncodingName) -> int:
    messages = [llm_pb2.Message(role="system", content=[llm_pb2.ContentPart(text=system)])] if system else []
    return tokens.count_request(messages, map(llm_pb2.ToolSchema.FromString, tools), encoding)


class Counting:
    """All counts of a service, and what its models' usage has taught."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Chat, _Counts] = WeakKeyDictionary()
        self._ratios: OrderedDict[str, float] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str | None], tuple[str, int, int]] = OrderedDict()

    def counter(self, chat: Chat, model: str) -> Counter:
        """The counter of a chat's messages for `model`. Called on the event loop."""
        known = self._known.setdefault(chat, {})
        facts = model_table.known_facts(model)
        if facts is not None and facts.encoding is not None:
            return Counter(facts.encoding, 1.0, known)
        return Counter(tokens.ESTIMATE_ENCODING, self._ratios.get(model, tokens.ESTIMATE_RATIO), known)

    def asked(self, run_id: str, context_id: str | None, model: str, n: int, count: int) -> None:
        """A request of `count` tokens, not scaled, was made of a log of `n` lines."""
        self._asked[run_id, context_id] = (model, n, count)
        self._asked.move_to_end((run_id, context_id))
        if len(self._asked) > REQUESTS_MAX:
            self._asked.popitem(last=False)

    def reported(self, run_id: str, context_id: str | None, n: int, input_tokens: int) -> None:
        """Line `n` has the answer to a request of that context, and what its provider says that the request had."""
        model, asked_n, count = self._asked.get((run_id, context_id), ("", 0, 0))
        if n <= asked_n or not count or not input_tokens:
            return
        del self._asked[run_id, context_id]
        ratio = min(max(input_tokens / count, RATIO_MIN), RATIO_MAX)
        before = self._ratios.pop(model, None)
        self._ratios[model] = ratio if before is None else RATIO_INERTIA * before + (1 - RATIO_INERTIA) * ratio
        if len(self._ratios) > MODELS_MAX:
            self._ratios.popitem(last=False)
