"""Blade-style entries: a tree of messages by uuid and parentUuid, with tool_use and tool_result in content or alone.

The conversation is the path from the last entry to its root; other branches were edited away.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from services.memory.importing.log_builder import LogBuilder
from services.memory.importing.messages import (
    Json,
    make_call,
    make_msg_id,
    make_result,
    read_parts,
    to_dict,
    to_list,
    to_milliseconds,
    to_text,
)
from services.memory.log.messages import StoredMessage, TextPart

_PARENTS = ("parentUuid", "logicalParentUuid")


def convert_entries(writing: LogBuilder, entries: list[Json]) -> None:
    names: dict[str, str] = {}
    boundary: Json = {}
    for entry in _select_path(entries):
        ts = to_milliseconds(entry.get("timestamp", entry.get("updatedAt")))
        inner = to_dict(entry.get("message"))
        content = inner.get("content", entry.get("content"))
        role = inner.get("role") or entry.get("role") or entry.get("type")
        if entry.get("subtype") == "compact_boundary":
            boundary = to_dict(entry.get("compactMetadata"))
        elif entry.get("isCompactSummary"):
            tokens = boundary.get("preTokens")
            trigger = "auto" if boundary.get("trigger") == "auto" else "manual"
            writing.add_compaction(_join_text(content), ts, trigger, tokens if isinstance(tokens, int) else 0)
        elif role in ("user", "human") and read_parts(_drop_tool_blocks(content)):
            writing.add_query(str(uuid.uuid4()), {"message": _join_text(content), "role": "user"}, ts)
            if images := [part for part in read_parts(_drop_tool_blocks(content)) if not isinstance(part, TextPart)]:
                writing.add_step(writing.run_id, [StoredMessage(role="user", content=list(images), ts=ts)], ts)
        elif messages := list(_read_messages(entry, content, str(role), ts, names)):
            writing.add_step(writing.run_id or str(uuid.uuid4()), messages, ts)


def _select_path(entries: list[Json]) -> list[Json]:
    by_id = {to_text(entry.get("uuid")): entry for entry in entries if entry.get("uuid")}
    linked = [entry for entry in entries for name in _PARENTS if to_text(entry.get(name)) in by_id]
    if not linked:
        return entries
    path: list[Json] = []
    known: set[str] = set()
    at: str | None = to_text(next(entry for entry in reversed(entries) if entry.get("uuid"))["uuid"])
    while at in by_id and at not in known:
        known.add(at)
        path.append(by_id[at])
        at = next((to_text(parent) for name in _PARENTS if (parent := by_id[at].get(name))), None)
    return path[::-1]


def _read_messages(entry: Json, content: object, role: str, ts: int, names: dict[str, str]) -> Iterator[StoredMessage]:
    msg_id = make_msg_id()
    is_alone = entry.get("type") in ("tool_use", "tool_result")
    for block in [entry] if is_alone else to_list(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            call_id = to_text(block.get("id") or block.get("tool_use_id") or block.get("uuid"))
            names[call_id] = to_text(block.get("name"))
            yield make_call(call_id, names[call_id], block.get("input", {}), ts, msg_id, {"tool_id": call_id})
        elif kind == "tool_result":
            call_id = to_text(block.get("tool_use_id") or block.get("id"))
            ids: Json = {"is_error": bool(block.get("is_error")), "tool_id": call_id}
            yield make_result(call_id, block.get("content"), ts, ids, names.get(call_id) or None)
        elif kind == "thinking":
            if thought := to_text(block.get("thinking")):
                yield StoredMessage(role="assistant", reasoning_content=[TextPart(thought)], ts=ts, msg_id=msg_id)
        elif role == "assistant" and (found := read_parts(block)):
            yield StoredMessage(role="assistant", content=found, ts=ts, msg_id=msg_id)


def _drop_tool_blocks(content: object) -> list[object]:
    return [item for item in to_list(content) if to_dict(item).get("type") not in ("tool_result", "tool_use")]


def _join_text(content: object) -> str:
    return "\n".join(part.text for part in read_parts(_drop_tool_blocks(content)) if isinstance(part, TextPart))
