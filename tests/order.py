"""The order rules of the event contract as a checker, and folding: both work on events in their JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]

TERMINAL = {"run.complete", "run.cancel", "run.error"}
TEXT_KINDS = {"reasoning": "reasoningId", "content": "contentId"}
IDS = {"reasoning": "reasoningId", "content": "contentId", "tool": "toolId"}


def check_order(events: Sequence[Event]) -> None:
    """Assert that `events` are one whole run as an uninterrupted reader sees it."""
    kinds = [event["type"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "seq counts from 1 without gaps"
    assert kinds[0] == "request.query"
    opening = [kind for kind in kinds if kind in ("request.query", "chat.start", "run.start")]
    assert opening in (["request.query", "run.start"], ["request.query", "chat.start", "run.start"]), opening
    assert kinds[: len(opening)] == opening, "nothing stands before run.start but the query and chat.start"
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:], "exactly one terminal event, the last"
    assert not [kind for kind in kinds if kind.endswith(".snapshot") and kind != "source.snapshot"]
    _check_blocks(events)
    _check_tools(events)
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)


def _check_blocks(events: Iterable[Event]) -> None:
    """Text blocks open, take deltas, close; one at a time; a tool call's first fragment closes them."""
    open_id: tuple[str, str] | None = None
    used: set[str] = set()
    for event in events:
        kind, _, part = event["type"].partition(".")
        if kind == "tool" and part == "start":
            assert open_id is None, f"{open_id} is still open at tool.start"
        if event["type"] in TERMINAL:
            assert open_id is None, f"{open_id} is still open at the end"
        if kind not in TEXT_KINDS:
            continue
        block_id = event[TEXT_KINDS[kind]]
        if part == "start":
            assert open_id is None, f"{open_id} is still open at the start of {block_id}"
            assert block_id not in used, f"{block_id} is used twice"
            used.add(block_id)
            open_id = (kind, block_id)
        else:
            assert open_id == (kind, block_id), f"{event['type']} of {block_id} while {open_id} is open"
            if part == "end":
                open_id = None


def _check_tools(events: Iterable[Event]) -> None:
    """start, args…, end, output…, result: each call in this order, whole before the run's end."""
    state: dict[str, str] = {}
    chunks: dict[str, int] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        if event["type"] in TERMINAL:
            assert set(state.values()) <= {"result"}, f"open calls at the end: {state}"
        if kind != "tool":
            continue
        tool_id = event["toolId"]
        before = state.get(tool_id)
        allowed = {"start": {None}, "args": {"start", "args"}, "end": {"start", "args"}}
        allowed |= {"output": {"end", "output"}, "result": {"end", "output"}}
        assert before in allowed[part], f"tool.{part} after {before} for {tool_id}"
        if part == "args":
            assert event["chunkIndex"] == chunks.get(tool_id, 0)
            chunks[tool_id] = event["chunkIndex"] + 1
        state[tool_id] = part


def fold(events: Iterable[Event]) -> dict[str, Any]:
    """What a reader of `events` knows at the end: texts, calls, results, the terminal event.

    A start or a snapshot of a known id replaces that block, a delta appends; attempt.reset drops the text of its run's
    blocks that began after fromSeq.
    """
    blocks: dict[str, dict[str, Any]] = {}
    earlier: dict[str, dict[str, Any]] = {}
    end: Event | None = None
    for event in events:
        if event["type"] == "run.start":
            earlier |= blocks
            blocks = {}
        kind, _, part = event["type"].partition(".")
        if kind in IDS:
            _fold_block(blocks, kind, part, event)
        elif event["type"] == "attempt.reset":
            blocks = {block_id: block for block_id, block in blocks.items() if block["seq"] <= event["fromSeq"]}
        elif event["type"] in TERMINAL:
            end = {key: value for key, value in event.items() if key != "timestamp"}
    blocks = earlier | blocks
    for block in blocks.values():
        del block["seq"]
    return {"blocks": blocks, "end": end}


def _fold_block(blocks: dict[str, dict[str, Any]], kind: str, part: str, event: Event) -> None:
    block_id = event[IDS[kind]]
    if part == "start":
        blocks[block_id] = {"kind": kind, "text": "", "name": event.get("toolName"), "seq": event["seq"]}
    elif part == "snapshot":
        block = {"kind": kind, "text": event.get("text", ""), "name": event.get("toolName"), "seq": event["seq"]}
        blocks[block_id] = block | ({"params": event.get("toolParams")} if kind == "tool" else {})
    elif part == "delta":
        blocks[block_id]["text"] += event["delta"]
    elif part == "end" and kind == "tool":
        blocks[block_id]["params"] = event.get("toolParams")
    elif part == "result":
        blocks[block_id] |= {"result": event["result"], "ok": event["ok"]}


def texts(events: Iterable[Event], kind: str) -> list[str]:
    """The deltas of one kind (content or reasoning), in order, byte for byte."""
    return [event["delta"] for event in events if event["type"] == f"{kind}.delta"]
