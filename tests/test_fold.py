"""The public fold against the cases that readers in other languages are held to as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from headrace.fold import Block, Fold, fold_events
from services.runtime.formats.json_form import encode, event

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fold_cases.json").read_text())


def describe_block(block: Block) -> dict[str, Any]:
    state: dict[str, Any] = {"kind": block.kind, "text": block.text, "name": block.name or None}
    state["isComplete"] = block.is_complete
    if block.kind == "content":
        state["isAnswer"] = block.is_answer
    if block.is_call and block.is_complete:
        state["params"] = json.loads(block.params) if block.params else None
    if block.result is not None:
        state["result"] = block.result
        if block.kind == "tool":
            state["ok"] = block.ok
    return state


def describe_fold(fold: Fold) -> dict[str, Any]:
    """The state in the form of fold_cases.json."""
    end = event(fold.end) if fold.end is not None else None
    tasks = {
        task.id: {"subagentId": task.subagent_id, "name": task.name, "description": task.description}
        | {"status": task.status, "summary": task.summary}
        | {"error": json.loads(encode(task.error)) if task.error is not None else None}
        for task in fold.tasks.values()
    }
    subagents = {
        subagent.id: {"parentId": subagent.parent_id, "taskId": subagent.task_id, "agentKey": subagent.agent_key}
        | {"depth": subagent.depth, "goal": subagent.goal, "ok": subagent.ok, "summary": subagent.summary}
        for subagent in fold.subagents.values()
    }
    return {
        "runId": fold.run_id,
        "chatId": fold.chat_id,
        "lastSeq": fold.last_seq,
        "blocks": {block.id: describe_block(block) for block in fold.blocks.values()},
        "plans": {plan_id: [json.loads(encode(task)) for task in plan] for plan_id, plan in fold.plans.items()},
        "tasks": tasks,
        "subagents": subagents,
        "answer": fold.answer,
        "end": {key: value for key, value in json.loads(end.json).items() if key != "timestamp"} if end else None,
    }


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_events_of_a_case_lead_to_its_state(case: dict[str, Any]) -> None:
    deltas = [parse_event(json.dumps(event, ensure_ascii=False, separators=(",", ":"))) for event in case["events"]]
    assert describe_fold(fold_events(deltas)) == case["state"]
    assert list(describe_fold(fold_events(deltas))["blocks"]) == list(case["state"]["blocks"])


def test_it_needs_what_the_light_client_brings_and_nothing_more() -> None:
    code = "import sys, headrace.client, headrace.event_json, headrace.fold; print(*sorted(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    ours = {name for name in printed.split() if name.startswith(("headrace.", "services"))}
    assert {name for name in ours if not name.startswith("headrace.v1.")} == {
        f"headrace.{name}"
        for name in (
            *(
                "calls",
                "calls.audit",
                "calls.agents",
                "calls.chats",
                "calls.data",
                "calls.facts",
                "calls.gates",
                "calls.keys",
                "calls.operators",
                "calls.schedules",
                "calls.spend",
            ),
            *("calls.unary", "calls.webhooks", "client", "errors", "event_json", "fold", "regular_files", "run_stream"),
            *("streams", "tls", "v1"),
        )
    }
    assert not {"msgspec", "orjson", "click", "aiohttp", "pydantic"} & set(printed.split())
