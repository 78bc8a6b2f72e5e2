"""A checker of the event contract's order rules, and a fold; both work on events in their JSON form."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.event_json import parse_event
from headrace.runs.fold import Fold
from headrace.runs.parts import Block

Event = dict[str, Any]

TERMINAL = {"run.complete", "run.cancel", "run.error"}
TEXT_KINDS = {"reasoning": "reasoningId", "content": "contentId"}
IDS = {"reasoning": "reasoningId", "content": "contentId", "tool": "toolId", "action": "actionId"}


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
    valid = _without_retracted(events)
    _check_blocks(valid)
    _check_tools(valid)
    _check_compactions(valid)
    _check_tasks(events)
    _check_subagents(events)
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)


def _without_retracted(events: Sequence[Event]) -> list[Event]:
    """Return the events without those of blocks that a later attempt.reset dropped."""
    resets = [event for event in events if event["type"] == "attempt.reset"]

    def is_retracted(event: Event) -> bool:
        if event["type"].partition(".")[0] not in IDS:
            return False
        return any(reset["seq"] > event["seq"] and is_lost(event, reset) for reset in resets)

    return [event for event in events if not is_retracted(event)]


def is_lost(event: Event, reset: Event) -> bool:
    """Return whether an attempt.reset drops the block that `event` started: in the same scope, after its fromSeq."""
    return _scope(event) == _scope(reset) and event["seq"] > reset["fromSeq"]


def _scope(event: Event) -> tuple[str | None, str | None]:
    """Return an event's scope; block rules hold for each scope separately."""
    return event.get("subagentId"), event.get("taskId")


def _check_blocks(events: Iterable[Event]) -> None:
    """Text blocks open, take deltas, close; one at a time in a scope; a tool call's first fragment closes them."""
    open_ids: dict[tuple[str | None, str | None], tuple[str, str] | None] = {}
    used: set[str] = set()
    for event in events:
        scope = _scope(event)
        open_id = open_ids.get(scope)
        kind, _, part = event["type"].partition(".")
        if kind in ("tool", "action") and part == "start":
            assert open_id is None, f"{open_id} is still open at {kind}.start"
        if event["type"] in TERMINAL:
            assert not any(open_ids.values()), f"{open_ids} are still open at the end"
        if kind not in TEXT_KINDS:
            continue
        block_id = event[TEXT_KINDS[kind]]
        if part == "start":
            assert open_id is None, f"{open_id} is still open at the start of {block_id}"
            assert block_id not in used, f"{block_id} is used twice"
            used.add(block_id)
            open_ids[scope] = (kind, block_id)
        else:
            assert open_id == (kind, block_id), f"{event['type']} of {block_id} while {open_id} is open"
            if part == "end":
                open_ids[scope] = None


def _check_tools(events: Iterable[Event]) -> None:
    """Each call has start, args…, end, output…, result in this order, and is complete before the run's end."""
    state: dict[str, str] = {}
    chunks: dict[str, int] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        if event["type"] in TERMINAL:
            assert set(state.values()) <= {"result"}, f"open calls at the end: {state}"
        if kind not in ("tool", "action"):
            continue
        tool_id = event[IDS[kind]]
        before = state.get(tool_id)
        allowed = {"start": {None}, "args": {"start", "args"}, "end": {"start", "args"}}
        allowed |= {"output": {"end", "output"}, "param": {"end"}, "result": {"end", "output", "param"}}
        assert before in allowed[part], f"{kind}.{part} after {before} for {tool_id}"
        if part == "args" and kind == "tool":
            assert event["chunkIndex"] == chunks.get(tool_id, 0)
            chunks[tool_id] = event["chunkIndex"] + 1
        state[tool_id] = part


def _check_compactions(events: Iterable[Event]) -> None:
    """start, then one of complete, fallback and fail, with nothing open, and nothing in between except people's
    messages; a cut run omits the latter."""
    is_open = False
    blocks = 0
    events = list(events)
    if any(_scope(event) != (None, None) for event in events):
        return  # scopes interleave freely
    for event in events:
        kind, _, part = event["type"].partition(".")
        if kind in TEXT_KINDS:
            blocks += {"start": 1, "end": -1}.get(part, 0)
        if kind != "compaction":
            assert not is_open or event["type"] in {*TERMINAL, "request.steer"}, f"{event['type']} within a compaction"
            continue
        assert blocks == 0, "a block is open at a compaction"
        assert is_open == (part != "start"), f"compaction.{part}"
        is_open = part == "start"


def _check_tasks(events: Iterable[Event]) -> None:
    """plan.create, then plan.update. Each task starts once, after it was planned, and ends once, before the run. Events
    with its id come in between, except for a task that others were split from."""
    planned: dict[str | None, set[str]] = {}
    state: dict[str, str] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        task_id = event.get("taskId")
        if kind == "plan":
            subagent = event.get("subagentId")
            assert (part == "create") == (subagent not in planned), f"plan.{part}"
            planned[subagent] = {task["taskId"] for task in event["plan"]}
        elif kind == "task" and part == "start":
            assert task_id in planned.get(event.get("subagentId"), ()), f"{task_id} is in no plan"
            assert task_id not in state, f"{task_id} starts twice"
            state[task_id] = "started"
        elif kind == "task":
            assert task_id is not None
            assert state.get(task_id) == "started", f"task.{part} of {task_id}, which is {state.get(task_id)}"
            state[task_id] = part
        elif task_id is not None:
            assert state.get(task_id) == "started", f"{event['type']} in task {task_id}, which is {state.get(task_id)}"
        if event["type"] in TERMINAL:
            assert "started" not in state.values(), f"tasks without an end: {state}"


def _check_subagents(events: Iterable[Event]) -> None:
    """Each sub-agent starts once, under the run or a started sub-agent, and ends once; its events come in between."""
    state: dict[str, str] = {}
    for event in events:
        subagent, kind = event.get("subagentId"), event["type"]
        if kind == "subagent.start":
            assert subagent not in state, f"{subagent} starts twice"
            parent = event["parentId"]
            assert parent == event["runId"] or state.get(parent) == "started", f"{subagent} starts under {parent}"
            state[event["subagentId"]] = "started"
        elif subagent is not None:
            assert state.get(subagent) == "started", f"{kind} of {subagent}, which has {state.get(subagent)}"
            if kind == "subagent.end":
                state[subagent] = "ended"
        elif kind in TERMINAL:
            assert set(state.values()) <= {"ended"}, f"the run ends before its sub-agents: {state}"


def fold(events: Iterable[Event]) -> dict[str, Any]:
    """Return the blocks and the terminal event that a reader of `events` ends up with, as plain values.

    Stricter than the fold itself: a block must be opened before any other event refers to it.
    """
    state, end = Fold(), None
    for event in events:
        delta = parse_event(json.dumps(event).encode())  # orjson takes no integer beyond 64 bits
        kind, _, part = event["type"].partition(".")
        if kind in IDS and part in ("delta", "end", "result"):
            assert event[IDS[kind]] in state.blocks, f"{event['type']} of a block that was not opened"
        state.apply(delta)
        if state.end is delta:
            end = {key: value for key, value in event.items() if key != "timestamp"}
    return {"blocks": {block_id: _describe_block(block) for block_id, block in state.blocks.items()}, "end": end}


def _describe_block(block: Block) -> dict[str, Any]:
    """Describe a block without what readers may see differently: a history lacks the raw arguments of a call."""
    is_tool = block.kind == "tool"
    result: dict[str, Any] = {
        "kind": block.kind,
        "text": "" if block.is_call else block.text,
        "name": block.name or None,
    }
    if block.kind == "content":
        result["isAnswer"] = block.is_answer
    if is_tool and block.is_complete:
        result["params"] = json.loads(block.params) if block.params else None
    if block.result is not None:
        result |= {"result": block.result} | ({"ok": block.ok} if is_tool else {})
    return result


def texts(events: Iterable[Event], kind: str) -> list[str]:
    """The deltas of one kind (content or reasoning), in order, byte for byte."""
    return [event["delta"] for event in events if event["type"] == f"{kind}.delta"]
