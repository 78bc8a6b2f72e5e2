"""A log without one user's content in another user's chat (docs/decisions/0027-erasing.md).

Every line keeps its number, its append and its run, so that references stay valid: the query states that it was erased,
steps have no messages, and lines with nothing to keep become kind `redacted`, which no view shows. Later summaries, and
texts copied by pins, are removed as well, because they may contain the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from services.memory.log.lines import (
    CompactBoundary,
    CompactSummary,
    Event,
    Line,
    Pin,
    Query,
    Revert,
    Revocation,
    Run,
    State,
    Step,
    SummaryEdit,
    Unknown,
    add_checksum,
    decode_line,
    remove_checksum,
)
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

ERASED_TEXT = "[erased]"

REDACTED = "redacted"

_ENDED = ("compaction.complete", "compaction.fallback")
"""Types of the events that report a compaction's outcome."""

_PLACE = ("_n", "uuid", "chatId", "runId", "updatedAt", "_lines", "_batch")
"""Fields of a line with no content left."""

_STAMP = ("_type", *_PLACE, "_tenant", "_user", "_gen", "_charges")

_KEPT: dict[type[Any], tuple[str, ...]] = {
    Query: ("query", "_owner", "_agentHash", "_agentVersion", "_agentVersionHash"),
    Step: ("_stage", "_seq", "taskId", "contextId", "messages", "_events"),
    Run: ("state", "finishReason", "error", "usage", "_events"),
    State: ("contextId", "version", "set", "unset"),
    Revert: ("toCheckpointId", "scope"),
    Revocation: ("grantId",),  # without which the grant would be in force again
}
"""Further fields that lines of the user keep, by kind."""

_QUERY_KEPT = ("chatId", "runId", "agentKey")

_SUMMARIES = CompactBoundary | CompactSummary | SummaryEdit

_OBJECT = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class Redaction:
    """Removes a user's runs from logs; `name` replaces the user's name."""

    user: str
    name: str
    run_ids: list[str] = field(default_factory=list[str])
    """The runs that were found."""
    _numbers: set[int] = field(default_factory=set[int])

    def redact_log(self, log: bytes) -> bytes:
        return b"".join(add_checksum(self._redact_line(remove_checksum(text))) + b"\n" for text in log.splitlines())

    def _redact_line(self, text: bytes) -> bytes:
        line = decode_line(text)
        if line is None:
            return text
        is_by_user = not isinstance(line, Unknown) and Identity.from_stored(line.tenant, line.user).user == self.user
        if isinstance(line, Query) and is_by_user:
            self.run_ids.append(line.run_id)
        # Lines of no run, such as a title or state, are the user's in a copy of a chat that the user owned.
        if line.run_id in self.run_ids or (is_by_user and not line.run_id):
            self._numbers.add(line.n)
            return _encode(self._redact_own(line, _OBJECT.decode(text)))
        if not self.run_ids:
            return text
        if isinstance(line, _SUMMARIES) or (isinstance(line, Pin) and line.target in self._numbers):
            return _encode(_make_redacted(_OBJECT.decode(text)))
        if isinstance(line, Event):
            return _redact_receipt(text)
        if isinstance(line, Run) and line.recording:
            # The recorded requests of its model calls include the erased texts.
            without = {key: value for key, value in _OBJECT.decode(text).items() if key != "recording"}
            return _encode(without | {"recordingProblem": "erased with a participant's messages"})
        return text

    def _redact_own(self, line: Line, record: dict[str, Any]) -> dict[str, Any]:
        kept = _KEPT.get(type(line))
        if kept is None:
            return _make_redacted(record)
        changed = {key: record[key] for key in (*_STAMP, *kept) if key in record} | {"_user": self.name}
        if change := _CHANGES.get(type(line)):
            changed |= change(record)
        return changed


def _redact_receipt(text: bytes) -> bytes:
    """Remove verbatim texts from the receipt in a compaction's final event."""
    if b'"pinned"' not in text:
        return text
    record = _OBJECT.decode(text)
    event = record["event"]
    if event["type"] not in _ENDED or not (receipt := event.get("receipt")):
        return text
    return _encode(record | {"event": event | {"receipt": receipt | {"pinned": []}}})


def _redact_query(record: dict[str, Any]) -> dict[str, Any]:
    query = {key: value for key, value in record["query"].items() if key in _QUERY_KEPT}
    return {"query": query | {"message": ERASED_TEXT}}


def _redact_end(record: dict[str, Any]) -> dict[str, Any]:
    error = record.get("error")
    return {"error": {"code": error.get("code", ""), "message": ERASED_TEXT}} if isinstance(error, dict) else {}  # pyright: ignore[reportUnknownMemberType] - JSON of any form


_CHANGES: dict[type[Any], Callable[[dict[str, Any]], dict[str, Any]]] = {
    Query: _redact_query,
    Step: lambda _: {"messages": []},
    Run: _redact_end,
    State: lambda _: {"set": {}, "unset": []},
}


def _make_redacted(record: dict[str, Any]) -> dict[str, Any]:
    return {"_type": REDACTED} | {key: record[key] for key in _PLACE if key in record}


def _encode(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record)
