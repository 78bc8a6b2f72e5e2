"""One stream of a run: its start, and its reader's position.

A cursor is the id of an event and encodes everything that its reader has: `seq`, followed by the messages and
calls open at the reader, each after a semicolon. Later events cannot tell which were open, because a replay
sends finished blocks whole. Events without an id belong to the next event with one.

In a followed thread, the cursor starts with the run: `n.seq` is the cursor of AgentService.Follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from headrace.errors import InvalidRequest
from services.facade.adapters.call_ids import parse_call_id
from services.facade.agui.messages import MessageKind

LAST_EVENT_ID = "Last-Event-ID"

CHARS_MAX = 4096

_LETTERS: Mapping[MessageKind, str] = {"text": "t", "reasoning": "r", "call": "c"}
_KINDS: Mapping[str, MessageKind] = {letter: kind for kind, letter in _LETTERS.items()}

_CURSOR = re.compile(r"(?:(\d{1,18})\.)?(\d{1,15})((?:;[trc][^;]+)*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    seq: int
    open_ids: Mapping[str, MessageKind] = field(default_factory=dict[str, MessageKind])
    """Messages and calls that have started and not ended."""

    n: str = ""
    """Number of the run in its chat; empty in the stream of a single run."""


def parse_cursor(text: str) -> Cursor:
    """Parse the header's value; raise InvalidRequest for a value that we did not issue."""
    found = _CURSOR.fullmatch(text) if len(text) <= CHARS_MAX else None
    if found is None:
        raise InvalidRequest.of(LAST_EVENT_ID, "must be the id of an event of this run")
    return Cursor(
        int(found[2]), {unquote(name[1:]): _KINDS[name[0]] for name in found[3].split(";")[1:]}, found[1] or ""
    )


def encode_open_ids(open_ids: Mapping[str, MessageKind]) -> bytes:
    """Return the part of a cursor after the sequence number."""
    return "".join(f";{_LETTERS[kind]}{quote(name, safe='')}" for name, kind in open_ids.items()).encode()


@dataclass(frozen=True, slots=True)
class Segment:
    """One of the streams of a run; a wait ends a stream, and the client sees each stream as a run."""

    thread_id: str
    client_run_id: str
    messages: Sequence[dict[str, Any]]
    """Messages of the request, as sent."""

    start_seq: int = 0
    """Sequence number of the last event in an earlier segment."""

    cursor: Cursor | None = None
    """Reader's position in this segment; None for a new request."""

    n: str = ""
    """Number of the run in a followed thread; empty in the stream of a single run."""

    answered: frozenset[str] = field(default_factory=frozenset[str])
    """Gates and calls that the request answers."""

    @property
    def is_continued(self) -> bool:
        """Whether the run started in an earlier segment."""
        return self.start_seq > 0

    @property
    def known_seq(self) -> int:
        return self.cursor.seq if self.cursor else self.start_seq

    def list_known_ids(self) -> frozenset[str]:
        """Return the ids of the request's messages, calls and results, all known to the client."""
        calls = [call.get("id", "") for message in self.messages for call in message.get("toolCalls") or ()]
        answered = [call_id for message in self.messages if (call_id := message.get("toolCallId"))]
        results = [f"{call_id}_result" for call_id in answered]
        return frozenset([*(message["id"] for message in self.messages), *calls, *answered, *results])

    def map_told_calls(self) -> dict[tuple[str, str], str]:
        """Return the client's ids of its function calls, by run id and call id."""
        ids = [*self.list_known_ids(), *(self.cursor.open_ids if self.cursor else ())]
        return {(call.run_id, call.tool_id): text for text in ids if (call := parse_call_id(text)) is not None}
