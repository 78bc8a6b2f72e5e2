"""kill -9 of the tools service during a call, in the real suite: the call is repeated only if its effect allows it."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.order import Event, check_order
from tests.support.pairing import assert_paired
from tests.support.suite import MODEL, Suite, fresh_suite

COMMAND = ["sh", "-c", "mkdir -p outputs; echo x >> outputs/count; echo on; sleep 1.5; echo done"]


CASES = {
    # effect, a person's decision, how often the command ran, a part of the result
    "read": ("read", "", 2, "done"),
    "idempotent": ("idempotent", "", 2, "done"),
    "left": ("once", "reject", 1, '"error":"unknown"'),
    "repeated": ("once", "approve", 2, "done"),
}


AGENTS = {name: f"caller-of-{name}" for name in CASES}


def add_tools(suite: Suite) -> None:
    """Write a command tool for each case, and an agent that may call it; they are loaded without a restart."""
    schema = {"type": "object", "properties": {}}
    form = {"type": "function", "description": "Acts", "parameters": schema, "command": COMMAND}
    tools = [form | {"name": name, "effect": effect} for name, (effect, *_) in CASES.items()]
    (suite.config_dir / "tools").mkdir(exist_ok=True)
    (suite.config_dir / "tools" / "cases.backend").write_text(json.dumps({"tools": tools}))
    for name, key in AGENTS.items():
        agent = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": [name]}, "react": {}}
        (suite.config_dir / "agents" / f"{key}.json").write_text(json.dumps(agent))


async def run_case(suite: Suite, name: str, works: asyncio.Event) -> list[Event]:
    """Read one case's run; `works` is set when its tool is running."""
    decision, events = CASES[name][1], list[Event]()
    async with suite.query(f"go {name}", AGENTS[name]) as stream:
        async for event in stream:
            events.append(event)
            if event["type"] == "tool.output":
                works.set()
            if event["type"] == "approval.ask":
                body = {"runId": events[2]["runId"], "approvalId": event["approvalId"]}
                status, answer = await suite.post("/api/submit", body | {"params": {"decision": decision}})
                assert (status, answer["data"]["status"]) == (200, "accepted")
    check_order(events)
    return events


@pytest.mark.nightly
async def test_after_a_kill_of_tools_a_call_is_repeated_only_if_allowed(tmp_path: Path) -> None:
    async with asyncio.timeout(600), fresh_suite(tmp_path) as suite:
        add_tools(suite)
        await suite.until_known(*CASES, *AGENTS.values())
        rules: list[dict[str, Any]] = [
            {"match": {"turn": 1, "text": name}, "steps": [{"toolCall": name, "id": "call_1", "arguments": ["{}"]}]}
            for name in CASES
        ]
        suite.play(*rules, {"steps": [{"content": "fine"}]})
        working = {name: asyncio.Event() for name in CASES}
        async with asyncio.TaskGroup() as group:
            runs = {name: group.create_task(run_case(suite, name, works)) for name, works in working.items()}
            await asyncio.gather(*(works.wait() for works in working.values()))
            os.kill(suite.services()["tools"], signal.SIGKILL)
        for name, (effect, _, times, expected_text) in CASES.items():
            events = runs[name].result()
            assert events[-1]["type"] == "run.complete", name
            [result] = [event["result"] for event in events if event["type"] == "tool.result"]
            assert expected_text in result, name
            notices = [event["code"] for event in events if event["type"] == "run.notice"]
            assert notices == (["OUTCOME_UNKNOWN"] if effect == "once" else []), name
            count = tmp_path / "data" / "workspaces" / events[0]["chatId"] / "outputs" / "count"
            assert len(count.read_text().splitlines()) == times, name
        for request in suite.requests():
            assert_paired(request["messages"])
