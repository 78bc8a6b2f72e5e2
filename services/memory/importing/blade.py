"""Blade-style entries: a tree of messages by uuid and parentUuid, with tool_use and tool_result in content or alone.

The conversation is the path from the last entry to its root: what somebody edited away is on another branch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from services.memory.importing.log_builder import Writing
from services.memory.importing.messages import Json, call, dict_of, list_of, new_msg_id, parts, result, text_in
from services.memory.importing.timestamps import milliseconds
from services.memory.log.lines import StoredMessage, TextPart


def take_in(writing: Writing, entries: list[Json]) -> None:
    """Write a conversation: each message of the user begins a run."""
    names: dict[str, str] = {}
    boundary: Json = {}
    for entry in _path(entries):
        ts = milliseconds(entry.get("timestamp", entry.get("updatedAt")))
        inner = dict_of(entry.get("message"))
        content = inner.get("content", entry.get("content"))
        role = inner.get("role") or entry.get("role") or entry.get("type")
        if entry.get("subtype") == "compact_boundary":
            boundary = dict_of(entry.get("compactMetadata"))
        elif entry.get("isCompactSummary"):
            tokens = boundary.get("preTokens")
            trigger = "auto" if boundary.get("trigger") == "auto" else "manual"
            writing.compacted(_text(content), ts, trigger, tokens if isinstance(tokens, int) else 0)
        elif role in ("user", "human") and _is_asked(content):
            writing.query(str(uuid.uuid4()), {"message": _text(content), "role": "user"}, ts)
            if images := [part for part in parts(_own(content)) if not isinstance(part, TextPart)]:
                writing.step(writing.run_id, [StoredMessage(role="user", content=list(images), ts=ts)], ts)
        elif said := list(_said(entry, content, str(role), ts, names)):
            writing.step(writing.run_id or str(uuid.uuid4()), said, ts)


def _path(entries: list[Json]) -> list[Json]:
    """The entries of the conversation, in order; all of them where they name no parents."""
    by_id = {text_in(entry.get("uuid")): entry for entry in entries if entry.get("uuid")}
    linked = [entry for entry in entries if entry.get("parentUuid") in by_id or entry.get("logicalParentUuid") in by_id]
    if not linked:
        return entries
    path: list[Json] = []
    known: set[str] = set()
    at: str | None = text_in(next(entry for entry in reversed(entries) if entry.get("uuid"))["uuid"])
    while at in by_id and at not in known:
        known.add(at)
        path.append(by_id[at])
        at = by_id[at].get("parentUuid") or by_id[at].get("logicalParentUuid")
    return path[::-1]


def _said(entry: Json, content: object, role: str, ts: int, names: dict[str, str]) -> Iterator[StoredMessage]:
    """The messages of an entry that is no question."""
    msg_id = new_msg_id()
    is_alone = entry.get("type") in ("tool_use", "tool_result")
    for block in [entry] if is_alone else list_of(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            call_id = text_in(block.get("id") or block.get("tool_use_id") or block.get("uuid"))
            names[call_id] = text_in(block.get("name"))
            yield call(call_id, names[call_id], block.get("input", {}), ts, msg_id, {"tool_id": call_id})
        elif kind == "tool_result":
            call_id = text_in(block.get("tool_use_id") or block.get("id"))
            ids: Json = {"is_error": bool(block.get("is_error")), "tool_id": call_id}
            yield result(call_id, block.get("content"), ts, ids, names.get(call_id) or None)
        elif kind == "thinking":
            if thought := text_in(block.get("thinking")):
                yield StoredMessage(role="assistant", reasoning_content=[TextPart(thought)], ts=ts, msg_id=msg_id)
        elif role == "assistant" and (found := parts(block)):
            yield StoredMessage(role="assistant", content=found, ts=ts, msg_id=msg_id)


def _is_asked(content: object) -> bool:
    """Whether a user's entry says something; one that only brings results does not."""
    return bool(parts(_own(content)))


def _own(content: object) -> list[object]:
    return [item for item in list_of(content) if dict_of(item).get("type") not in ("tool_result", "tool_use")]


def _text(content: object) -> str:
    return "\n".join(part.text for part in parts(_own(content)) if isinstance(part, TextPart))
