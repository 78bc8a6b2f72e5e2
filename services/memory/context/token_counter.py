"""What messages cost in tokens: each counted once, when it is appended, in the encoding of its chat's model.

Exact for OpenAI's encodings. Other models are counted in one of them, times a ratio that their reported usage teaches.
What the log has no count of (older lines, another encoding, shortened forms) is counted when it is needed, and kept
beside the chat as long as the chat is in memory.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.message_pairing import WITHOUT_REASONING
from services.memory.context.token_ratios import Ratios
from services.memory.log.images import with_images
from services.memory.log.lines import Tokens
from services.runtime.tokens import count, model_table

if TYPE_CHECKING:
    from services.memory.context.context_source import Story
    from services.memory.context.message_pairing import Position, Said, Unit
    from services.memory.log.chat import Chat
    from services.memory.log.images import Find
    from services.memory.log.lines import Learned
    from services.memory.storage.engine import Engine
    from services.runtime.tokens.encodings import EncodingName

INLINE_BYTES_MAX = 16 * 1024
"""Of lines that are made, or told, on the event loop: some 0.5 ms; a thread costs small ones more than that."""

_WHOLE = ("", WITHOUT_REASONING)
"""Forms whose pieces are told as they are, or not at all."""

CHATS_MAX = 10_000
"""Chats whose model's encoding is kept in mind."""

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
    find: Find
    """Contents of images that stand as references. May block."""

    def text(self, text: str) -> int:
        """Of text that is part of a message."""
        return count.count_text(text, self.encoding)

    def message(self, message: llm_pb2.Message) -> int:
        """Of a message that is in no log."""
        return count.count_message(with_images(message, self.find), self.encoding)

    def stored(self, message: llm_pb2.Message) -> Tokens:
        """The same as the log keeps it."""
        return Tokens(self.encoding, self.message(message))

    def said(self, said: Said) -> int:
        if said.at is None:
            return self.message(said.message)
        if said.form in _WHOLE and (stored := self._stored(said)) is not None:
            return stored
        key = _Key(self.encoding, said.at, said.pieces, said.form)
        count = self.known.get(key)
        if count is None:
            count = self.known[key] = self.message(said.message)
        return count

    def _stored(self, said: Said) -> int | None:
        """The sum of what its pieces cost by the log; None: it does not say, or in another encoding."""
        count = 0
        for piece in said.tokens:
            if piece is None or piece.encoding != self.encoding:
                return None
            count += piece.count
        # Each piece was counted as a message of its own.
        return count - (len(said.tokens) - 1) * _head_tokens(said.message.role, self.encoding) if said.tokens else None

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


@cache
def _head_tokens(role: str, encoding: EncodingName) -> int:
    """Of a message that says nothing."""
    return count.count_message(llm_pb2.Message(role=role), encoding)


@lru_cache(maxsize=FRAMES_MAX)
def _frame_tokens(system: str, tools: tuple[bytes, ...], encoding: EncodingName) -> int:
    messages = [llm_pb2.Message(role="system", content=[llm_pb2.ContentPart(text=system)])] if system else []
    return count.count_request(messages, map(llm_pb2.ToolSchema.FromString, tools), encoding)


class _Asked(msgspec.Struct, array_like=True):
    """A request that was counted."""

    chat_id: str
    run_id: str
    context_id: str | None
    model: str
    count: int


class Counting:
    """All counts of a service. Touched on the event loop only."""

    def __init__(self, engine: Engine) -> None:
        self._find_blob = engine.blobs.find
        self._share = engine.peers.share
        engine.peers.listen(self._heard)
        self._known: WeakKeyDictionary[Chat, _Counts] = WeakKeyDictionary()
        self._encodings: OrderedDict[str, EncodingName] = OrderedDict()
        """Of the model that a chat was last told to, by chat."""
        self._ratios = Ratios()

    def counter(self, chat: Chat, model: str) -> Counter:
        """The counter of a chat's messages for `model`."""
        known = self._known.setdefault(chat, {})
        find = partial(self._find_blob, chat.chat_id)
        if encoding := _exact(model):
            return Counter(encoding, 1.0, known, find)
        return Counter(count.ESTIMATE_ENCODING, self._ratios.of(model, chat.log), known, find)

    def draft_counter(self, chat_id: str) -> Counter:
        """The counter of messages that are about to be appended to a chat, for the log."""
        return Counter(
            self._encodings.get(chat_id, count.ESTIMATE_ENCODING), 1.0, {}, partial(self._find_blob, chat_id)
        )

    def learn(self, request: memory_pb2.AppendRequest) -> dict[int, Learned]:
        """What the usage in `request` teaches of its model's tokens, by index of its line."""
        return self._ratios.learned(request)

    def asked(self, chat: Chat, told: Story, model: str, count: int) -> None:
        """A request of `count` tokens, not scaled, is made to `model`; another service may get what it has cost."""
        asked = _Asked(chat.chat_id, told.run_id, told.context_id, model, count)
        self._note(asked)
        self._share(msgspec.json.encode(asked).decode())

    def _heard(self, news: str) -> None:
        self._note(msgspec.json.decode(news, type=_Asked))

    def _note(self, asked: _Asked) -> None:
        encoding = _exact(asked.model)
        self._encodings[asked.chat_id] = encoding or count.ESTIMATE_ENCODING
        self._encodings.move_to_end(asked.chat_id)
        if len(self._encodings) > CHATS_MAX:
            self._encodings.popitem(last=False)
        if encoding is None:
            self._ratios.asked(asked.run_id, asked.context_id, asked.model, asked.count)


def _exact(model: str) -> EncodingName | None:
    """The encoding of a model of OpenAI's."""
    facts = model_table.known_facts(model)
    return None if facts is None else facts.encoding
