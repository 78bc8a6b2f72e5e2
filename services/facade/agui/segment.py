"""One stream of a run: where it begins, and what its reader has already.

Cursors: the ids of events, which say what their reader has.

`seq`, and behind it, after semicolons, the messages and calls that are open at the reader: they cannot be told from the
run's later events, as a block that has ended comes whole then. Events without an id belong to the next one with one.
In a followed thread the run comes first: `n.seq` is AgentService.Follow's cursor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from headrace.errors import InvalidRequest
from services.facade.agui.messages import MessageKind
from services.facade.faces.call_ids import parse_call_id

LAST_EVENT_ID = "Last-Event-ID"

CHARS_MAX = 4096

_LETTERS: Mapping[MessageKind, str] = {"text": "t", "reasoning": "r", "call": "c"}
_KINDS: Mapping[str, MessageKind] = {letter: kind for kind, letter in _LETTERS.items()}

_CURSOR = re.compile(r"(?:(\d{1,18})\.)?(\d{1,15})((?:;[trc][^;]+)*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    seq: int
    open_ids: Mapping[str, MessageKind] = field(default_factory=dict[str, MessageKind])
    """Messages and calls that have begun and not ended."""

    n: str = ""
    """What names the run in its chat; empty in the stream of one run."""


def parse_cursor(text: str) -> Cursor:
    """Parse a header's value; a foreign one raises InvalidRequest."""
    found = _CURSOR.fullmatch(text) if len(text) <= CHARS_MAX else None
    if found is None:
        raise InvalidRequest.of(LAST_EVENT_ID, "must be the id of an event of this run")
    return Cursor(
        int(found[2]), {unquote(name[1:]): _KINDS[name[0]] for name in found[3].split(";")[1:]}, found[1] or ""
    )


def encode_open_ids(open_ids: Mapping[str, MessageKind]) -> bytes:
    """Return the part behind the seq."""
    return "".join(f";{_LETTERS[kind]}{quote(name, safe='')}" for name, kind in open_ids.items()).encode()


@dataclass(frozen=True, slots=True)
class Segment:
    """A run that waits ends its stream, so a run may have several, each a run to the client."""

    thread_id: str
    client_run_id: str
    messages: Sequence[dict[str, Any]]
    """The request's, as they were sent."""

    start_seq: int = 0
    """The last event that an earlier segment has told."""

    cursor: Cursor | None = None
    """What the reader has of this segment; None when it has just asked for it."""

    n: str = ""
    """What names the run in a thread that is followed; empty where one run is."""

    answered: frozenset[str] = field(default_factory=frozenset[str])
    """Gates and calls that the request answers."""

    @property
    def is_continued(self) -> bool:
        """Whether the run has begun in another segment."""
        return self.start_seq > 0

    @property
    def known_seq(self) -> int:
        return self.cursor.seq if self.cursor else self.start_seq

    def list_known_ids(self) -> frozenset[str]:
        """Return the ids of the request's messages and calls, which the client has."""
        calls = [call.get("id", "") for message in self.messages for call in message.get("toolCalls") or ()]
        answered = [message["toolCallId"] for message in self.messages if "toolCallId" in message]
        results = [f"{call_id}_result" for call_id in answered]
        return frozenset([*(message["id"] for message in self.messages), *calls, *answered, *results])

    def map_told_calls(self) -> dict[tuple[str, str], str]:
        """Return the client's ids of calls of its functions that it was told, by run and call."""
        told = [*self.list_known_ids(), *(self.cursor.open_ids if self.cursor else ())]
        return {(call.run_id, call.tool_id): text for text in told if (call := parse_call_id(text)) is not None}
