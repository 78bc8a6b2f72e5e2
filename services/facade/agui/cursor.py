"""Cursors: the ids of events, which say what their reader has.

`seq`, and behind it, after semicolons, the messages and calls that are open at the reader: they cannot be told from the
run's later events, as a block that has ended comes whole then. Events without an id belong to the next one with one.
In a followed thread the run comes first: `n.seq` is AgentService.Follow's cursor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from headrace.errors import InvalidRequest
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
