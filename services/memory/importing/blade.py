"""Blade-style entries: a tree of messages by uuid and parentUuid, with tool_use and tool_result in content or alone.

The conversation is the path from the last entry to its root; other branches were edited away.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

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
from services.memory.log.messages import Part, StoredMessage, TextPart

_PARENTS = ("parentUuid", "logicalParentUuid")
_CALLS = ("tool_use", "tool_result")


def convert_entries(writing: LogBuilder, entries: list[Json]) -> None:
    names: dict[str, str] = {}
    msg_ids: dict[str, str] = {}
    boundary: Json = {}
    for entry in _select_path(entries):
        ts = to_milliseconds(entry.get("timestamp", entry.get("updatedAt")))
        inner = to_dict(entry.get("message"))
        role = inner.get("role") or entry.get("role") or entry.get("type")
        blocks = _list_blocks(entry)
        if entry.get("subtype") == "compact_boundary":
            boundary = to_dict(entry.get("compactMetadata"))
        elif entry.get("isCompactSummary"):
            tokens = boundary.get("preTokens")
            trigger = "auto" if boundary.get("trigger") == "auto" else "manual"
            parts = _read_said(blocks)
            writing.add_compaction(_join_text(parts), ts, trigger, tokens if isinstance(tokens, int) else 0)
        else:
            # An answer whose parts are entries of their own has one id in all of them.
            answer_id, msg_id = to_text(inner.get("id")), make_msg_id()
            msg_id = msg_ids.setdefault(answer_id, msg_id) if answer_id else msg_id
            if messages := list(_read_messages(blocks, str(role), ts, msg_id, names)):
                writing.add_step(writing.run_id or str(uuid.uuid4()), messages, ts)
            if role in ("user", "human") and (parts := _read_said(blocks)):
                writing.add_query(str(uuid.uuid4()), {"message": _join_text(parts), "role": "user"}, ts)
                if images := [part for part in parts if not isinstance(part, TextPart)]:
                    writing.add_step(writing.run_id, [StoredMessage(role="user", content=list(images), ts=ts)], ts)


def _select_path(entries: list[Json]) -> list[Json]:
    """Return the entries of the conversation: the path to the last one, with the results of the calls on it.

    Results of parallel calls are branches of their own. A sub-agent's entries among others are left out, because its
    result is that of its call.
    """
    entries = [entry for entry in entries if entry.get("isSidechain") is not True] or entries
    places = {to_text(entry.get("uuid")): place for place, entry in enumerate(entries) if entry.get("uuid")}
    if not any(to_text(entry.get(name)) in places for entry in entries for name in _PARENTS):
        return entries
    path: set[int] = set()
    at: int | None = max(places.values())
    while at is not None and at not in path:
        path.add(at)
        at = _find_parent(entries, places, at)
    return [entries[place] for place in sorted(path | _find_results(entries, path))]


def _find_parent(entries: list[Json], places: dict[str, int], at: int) -> int | None:
    """Return the place of an entry's parent; if the file lacks the parent, that of the entry before."""
    parents = [to_text(parent) for name in _PARENTS if (parent := entries[at].get(name))]
    for parent in parents:
        if parent in places:
            return places[parent]
    before = range(at - 1, -1, -1) if parents else ()
    return next((place for place in before if entries[place].get("uuid")), None)


def _find_results(entries: list[Json], path: set[int]) -> set[int]:
    """Return the places of entries off the path that hold only results, among them some that the path's calls lack."""
    missing = {call_id for place in path for call_id in _list_call_ids(entries[place], "tool_use")}
    missing -= {call_id for place in path for call_id in _list_call_ids(entries[place], "tool_result")}
    found: set[int] = set()
    for place, entry in enumerate(entries):
        results = _list_call_ids(entry, "tool_result")
        if not missing.isdisjoint(results) and len(results) == len(_list_blocks(entry)):
            found.add(place)
            missing.difference_update(results)
    return found


def _list_blocks(entry: Json) -> list[Any]:
    """Return the parts of an entry's content, or the entry itself if it is a call or a result."""
    if entry.get("type") in _CALLS:
        return [entry]
    return to_list(to_dict(entry.get("message")).get("content", entry.get("content")))


def _list_call_ids(entry: Json, kind: str) -> list[str]:
    return [_get_call_id(block) for block in map(to_dict, _list_blocks(entry)) if block.get("type") == kind]


def _get_call_id(block: Json) -> str:
    names = ("tool_use_id", "id") if block.get("type") == "tool_result" else ("id", "tool_use_id", "uuid")
    return to_text(next(filter(None, map(block.get, names)), None))


def _read_messages(
    blocks: list[Any], role: str, ts: int, msg_id: str, names: dict[str, str]
) -> Iterator[StoredMessage]:
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            call_id = _get_call_id(block)
            names[call_id] = to_text(block.get("name"))
            yield make_call(call_id, names[call_id], block.get("input", {}), ts, msg_id, {"tool_id": call_id})
        elif kind == "tool_result":
            call_id = _get_call_id(block)
            ids: Json = {"is_error": bool(block.get("is_error")), "tool_id": call_id}
            yield make_result(call_id, block.get("content"), ts, ids, names.get(call_id) or None)
        elif kind == "thinking":
            if thought := to_text(block.get("thinking")):
                yield StoredMessage(role="assistant", reasoning_content=[TextPart(thought)], ts=ts, msg_id=msg_id)
        elif role == "assistant" and (found := read_parts(block)):
            yield StoredMessage(role="assistant", content=found, ts=ts, msg_id=msg_id)


def _read_said(blocks: list[Any]) -> list[Part]:
    """Return what is neither a call nor a result."""
    return read_parts([block for block in blocks if to_dict(block).get("type") not in _CALLS])


def _join_text(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
