"""The conversation of another program that a query brings along.

Models see its messages around the query's own, but for those of role system, which go on instructing the chat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from services.memory.log.lines import Call, Function, Line, Query, StoredMessage, TextPart
from services.memory.log.messages import is_object

_PORTABLE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Ids that OpenAI (up to 40 characters) and Anthropic (these characters) take as they are (2026-05)."""


class EarlierCall(msgspec.Struct, gc=False):
    id: str = ""
    name: str = ""
    arguments: str = ""

    def to_stored(self) -> Call:
        return Call(
            make_portable_id(self.id), Function(self.name, self.arguments if is_object(self.arguments) else "{}")
        )


class EarlierMessage(msgspec.Struct, rename="camel", gc=False):
    role: str = ""
    content: str = ""
    tool_calls: list[EarlierCall] = []
    tool_call_id: str = ""

    def to_stored(self) -> StoredMessage:
        return StoredMessage(
            role=self.role,
            content=[TextPart(self.content)] if self.content or self.role == "tool" else None,
            tool_calls=[call.to_stored() for call in self.tool_calls] or None,
            tool_call_id=make_portable_id(self.tool_call_id) if self.role == "tool" else None,
        )


class QueryTexts(msgspec.Struct):
    """A query's message, and those before and behind it."""

    message: str = ""
    history: list[EarlierMessage] = []
    progress: list[EarlierMessage] = []


QUOTED = "Messages of another program, as this participant tells them:"

QUERY_TEXTS = msgspec.json.Decoder(QueryTexts)


def make_portable_id(given: str) -> str:
    """Return a call's id in a form that every provider takes, the same one each time."""
    return given if _PORTABLE_ID.fullmatch(given) else f"call_{sha256(given.encode()).hexdigest()[:32]}"


def quote_earlier_messages(query: QueryTexts) -> str:
    """Return the earlier messages of another user's query as that user's words; empty if there are none."""
    said = [_quote(message) for message in (*query.history, *query.progress)]
    return "\n\n".join([QUOTED, *said]) if said else ""


def _quote(message: EarlierMessage) -> str:
    calls = "".join(f"\n[calls {call.name}] {call.arguments}" for call in message.tool_calls)
    return f"[{message.role}] {message.content}{calls}"


def read_instructions(lines: Iterable[Line]) -> list[str]:
    """Return the texts of role system that the queries of `lines` bring along."""
    queries = (QUERY_TEXTS.decode(line.query) for line in lines if isinstance(line, Query))
    return [
        earlier.content
        for query in queries
        for earlier in (*query.history, *query.progress)
        if earlier.role == "system" and earlier.content
    ]
