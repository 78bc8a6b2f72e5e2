"""Token counts of messages, made at append in the encoding of the chat's model, and the limits of its window.

Counts are exact for OpenAI's encodings; other models have a ratio learned from reported usage.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args
from weakref import WeakKeyDictionary

import msgspec

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.pairing import INTERRUPTED, SUMMARY, WITHOUT_REASONING
from services.memory.context.token_ratios import CountedRequest, ModelKey, TokenRatios
from services.memory.log.media import copy_with_media
from services.memory.log.messages import Tokens
from services.runtime.auth import identity
from services.runtime.formats.own_tags import format_reminder
from services.runtime.tokens import count, model_table
from services.runtime.tokens.count import EncodingName

if TYPE_CHECKING:
    from services.memory.context.pairing import MessageGroup, PairedMessage, Position
    from services.memory.context.source import ContextSource
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Learned
    from services.memory.log.media import FindBlob
    from services.memory.storage.engine import Engine


def get_window_tokens(limits: memory_pb2.ModelLimits) -> int:
    """Return the window's tokens, for request and answer together."""
    return model_table.find_window(limits.model, limits.context_window_tokens)


def get_answer_tokens(limits: memory_pb2.ModelLimits) -> int:
    """Return the tokens reserved for the answer, at most half of the window, because some provider files declare the
    whole window as the maximum output."""
    known = model_table.known_facts(limits.model) or model_table.UNKNOWN
    return min(limits.output_tokens or known.max_output, get_window_tokens(limits) // 2)


def get_request_tokens_max(limits: memory_pb2.ModelLimits) -> int:
    return get_window_tokens(limits) - get_answer_tokens(limits)


INLINE_BYTES_MAX = 16 * 1024
"""Maximum size of lines processed on the event loop: some 0.5 ms, less than a thread costs."""

_WHOLE = ("", WITHOUT_REASONING, SUMMARY)
"""Forms of messages that are shown either complete or not at all."""

_OURS: dict[str, EncodingName] = {name: name for name in get_args(EncodingName)}

CHATS_MAX = 10_000
"""Maximum chats with a remembered encoding."""

FRAMES_MAX = 128
"""Maximum cached counts of system message and tools, some 30 KB each, which repeat in every turn."""


class _Key(NamedTuple):
    encoding: EncodingName
    at: Position
    pieces: int
    form: str


_Counts: TypeAlias = "dict[_Key, int]"


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts in one model's encoding, in any thread."""

    encoding: EncodingName
    ratio: float
    """The model's tokens per token of that encoding."""
    known: _Counts
    find: FindBlob
    """Finds contents of referenced images; it may block."""

    def count_text(self, text: str) -> int:
        return count.count_text(text, self.encoding)

    def count_message(self, message: llm_pb2.Message) -> int:
        return count.count_message(copy_with_media(message, self.find), self.encoding)

    def count_for_log(self, message: llm_pb2.Message) -> Tokens:
        return Tokens(self.encoding, self.count_message(message))

    def count_paired(self, paired: PairedMessage) -> int:
        if paired.at is None:
            return self.count_message(paired.message)
        if paired.form in _WHOLE and (stored := self._sum_log_counts(paired)) is not None:
            return stored
        key = _Key(self.encoding, paired.at, paired.pieces, paired.form)
        count = self.known.get(key)
        if count is None:
            count = self.known[key] = self.count_message(paired.message)
        return count

    def _sum_log_counts(self, paired: PairedMessage) -> int | None:
        """Return the sum of the logged counts of the message's pieces; None if one is missing or in another
        encoding."""
        count = 0
        for piece in paired.tokens:
            if piece is None or piece.encoding != self.encoding:
                return None
            count += piece.count
        # Each piece was counted as a separate message.
        return (
            count - (len(paired.tokens) - 1) * _count_empty_message(paired.message.role, self.encoding)
            if paired.tokens
            else None
        )

    def count_group(self, group: MessageGroup) -> int:
        missing = len(group.head.message.tool_calls) - len(group.results)
        tokens = sum(map(self.count_paired, (group.head, *group.results.values())))
        return tokens + missing * _count_interrupted(self.encoding) + self.count_reminders(group)

    def count_reminders(self, group: MessageGroup) -> int:
        return sum(self.count_text(format_reminder(reminder.values())) for reminder in group.reminders)

    def count_groups(self, groups: Iterable[MessageGroup]) -> int:
        return sum(map(self.count_group, groups))

    def count_frame(self, system: str, schemas: Sequence[llm_pb2.ToolSchema]) -> int:
        """Return the tokens of a request's frame, system message and tools."""
        tools = tuple(schema.SerializeToString(deterministic=True) for schema in schemas)
        return _count_request_frame(system, tools, self.encoding)

    def to_model_tokens(self, count: int) -> int:
        return math.ceil(count * self.ratio)

    def from_model_tokens(self, tokens_max: int) -> int:
        """Return the largest count within `tokens_max` of the model's own tokens."""
        return math.floor(tokens_max / self.ratio)


@cache
def _count_empty_message(role: str, encoding: EncodingName) -> int:
    return count.count_message(llm_pb2.Message(role=role), encoding)


@cache
def _count_interrupted(encoding: EncodingName) -> int:
    message = llm_pb2.Message(role="tool", content=[llm_pb2.ContentPart(text=INTERRUPTED)])
    return count.count_message(message, encoding)


@lru_cache(maxsize=FRAMES_MAX)
def _count_request_frame(system: str, tools: tuple[bytes, ...], encoding: EncodingName) -> int:
    messages = [llm_pb2.Message(role="system", content=[llm_pb2.ContentPart(text=system)])] if system else []
    return count.count_request(messages, map(llm_pb2.ToolSchema.FromString, tools), encoding)


class _SharedRequest(msgspec.Struct, array_like=True):
    """A counted request, shared with the services that may receive its answer's usage."""

    chat_id: str
    run_id: str
    context_id: str | None
    model: str
    count: int
    tenant: str = ""
    provider_key: str = ""
    encoding: EncodingName | None = None


class TokenCounters:
    """The counters of a service, used on the event loop only."""

    def __init__(self, engine: Engine) -> None:
        self._find_blob = engine.blobs.find
        self._share = engine.peers.share
        engine.peers.listen(lambda news: self._store_request(msgspec.json.decode(news, type=_SharedRequest)))
        self._known: WeakKeyDictionary[Chat, _Counts] = WeakKeyDictionary()
        self._encodings: OrderedDict[str, EncodingName] = OrderedDict()
        self._ratios = TokenRatios()

    def create_counter(self, chat: Chat, limits: memory_pb2.ModelLimits) -> TokenCounter:
        known = self._known.setdefault(chat, {})
        find = partial(self._find_blob, chat.chat_id)
        encoding = _find_exact_encoding(limits)
        key = ModelKey(identity.current_tenant(), limits.provider_key, limits.model)
        ratio = self._ratios.get_ratio(key, chat.log, is_exact=encoding is not None)
        return TokenCounter(encoding or count.ESTIMATE_ENCODING, ratio, known, find)

    def create_append_counter(self, chat_id: str) -> TokenCounter:
        return TokenCounter(
            self._encodings.get(chat_id, count.ESTIMATE_ENCODING), 1.0, {}, partial(self._find_blob, chat_id)
        )

    def learn_ratios(self, request: memory_pb2.AppendRequest) -> dict[int, Learned]:
        return self._ratios.learn_ratios(request)

    def note_request(self, chat: Chat, source: ContextSource, limits: memory_pb2.ModelLimits, count: int) -> None:
        """Record a request of `count` unscaled tokens, whose usage may be reported to another service."""
        asked = _SharedRequest(
            chat.chat_id,
            source.run_id,
            source.context_id,
            limits.model,
            count,
            identity.current_tenant(),
            limits.provider_key,
            _find_exact_encoding(limits),
        )
        self._store_request(asked)
        self._share(msgspec.json.encode(asked).decode())

    def _store_request(self, asked: _SharedRequest) -> None:
        self._encodings[asked.chat_id] = asked.encoding or count.ESTIMATE_ENCODING
        self._encodings.move_to_end(asked.chat_id)
        if len(self._encodings) > CHATS_MAX:
            self._encodings.popitem(last=False)
        key = ModelKey(asked.tenant, asked.provider_key, asked.model)
        counted = CountedRequest(key, asked.count, asked.encoding is not None)
        self._ratios.note_request(asked.run_id, asked.context_id, counted)


def _find_exact_encoding(limits: memory_pb2.ModelLimits) -> EncodingName | None:
    if named := _OURS.get(limits.encoding):
        return named
    facts = model_table.known_facts(limits.model)
    return None if facts is None else facts.encoding
