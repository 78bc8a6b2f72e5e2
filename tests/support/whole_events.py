"""Everything a reader knows of a run: each field of each event, derived from the event types."""

import json
from collections.abc import Iterable

from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import is_object
from tests.support.order import Event, is_lost

PAYLOADS = agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
NAMES = {field.name for field in PAYLOADS}
BLOCKS = {name.removesuffix("_start") for name in NAMES if name.replace("_start", "_snapshot") in NAMES - {name}}
"""Kinds of events that a snapshot stands for."""

CALLS = {"tool", "action"}

MESSAGES = {field.name: field.message_type for field in PAYLOADS}

LIVE_ONLY = {"tool.output", "attempt.reset", "compaction.start"}
"""Events about work under way, which no history has."""


def fold_fields(events: Iterable[Event]) -> list[Event]:
    """Return the fields of each block and of each other event, ordered by their ends.

    Timestamps are omitted, because a history has the time at which a query was stored.
    """
    blocks: dict[str, Event] = {}
    others: dict[tuple[str, int], Event] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        if event["type"] == "attempt.reset":
            blocks = {id_: block for id_, block in blocks.items() if not is_lost(block["first"], event)}
        if event["type"] in LIVE_ONLY:
            continue
        if kind not in BLOCKS or part in ("param", "result"):
            others[event["type"], event["seq"]] = {name: event[name] for name in event.keys() - {"timestamp"}}
            continue
        block_id = event[f"{kind}Id"]
        if part in ("start", "snapshot"):
            blocks[block_id] = {"kind": kind, "first": event, "text": ""}
        block = blocks[block_id]
        block |= {name: event[name] for name in event.keys() - {"type", "timestamp", "delta", "chunkIndex", "text"}}
        if part == "snapshot" and kind in CALLS:
            block["text"] = None
        else:
            block["text"] += event.get("delta", event.get("text", ""))
    for block in blocks.values():
        del block["first"]
        if block["kind"] in CALLS:
            _join_arguments(block)
    return [*sorted(blocks.values(), key=lambda block: block["seq"]), *(others[key] for key in sorted(others))]


def _join_arguments(call: Event) -> None:
    """Move a call's arguments from its pieces to the snapshot's field, if they are a JSON object."""
    text = call.pop("text")
    if text is not None and is_object(text or "{}"):
        call["arguments"] = json.loads(text or "{}")
