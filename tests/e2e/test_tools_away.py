"""The tools service is killed during many runs: neither they nor runs that start meanwhile fail.

TOOLS_AWAY_S is the time for which it is killed again whenever it is back; 0 means one kill.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.order import Event, check_order
from tests.support.pairing import assert_paired
from tests.support.suite import MODEL, Suite, fresh_suite

AWAY_S = float(os.environ.get("TOOLS_AWAY_S", "0"))

RUNS = 20
LATER = 5
"""Number of queries of each agent sent while the service is away."""

BUDGET = {"timeoutMs": 600_000, "maxToolCalls": 50, "maxModelCalls": 50}
COMMAND = ["sh", "-c", "echo on; sleep 1; echo done"]


def configure(suite: Suite) -> None:
    """Write a tool that works for a second, an agent that calls it, and an agent that delegates to that one."""
    tool = {"type": "function", "name": "work", "description": "Works", "effect": "read", "command": COMMAND}
    (suite.config_dir / "tools").mkdir(exist_ok=True)
    tools = {"tools": [tool | {"parameters": {"type": "object", "properties": {}}}]}
    (suite.config_dir / "tools" / "work.backend").write_text(json.dumps(tools))
    common: dict[str, Any] = {"mode": "REACT", "modelConfig": MODEL, "budget": BUDGET, "react": {}}
    agents = {"worker": {"toolConfig": {"backends": ["work"]}}, "parent": {"subagents": ["worker"]}}
    for key, fields in agents.items():
        (suite.config_dir / "agents" / f"{key}.json").write_text(json.dumps(common | fields))
    delegation = json.dumps({"agentKey": "worker", "task": "work yourself"})
    suite.play(
        {
            "match": {"turn": 1, "text": "^parent"},
            "steps": [{"toolCall": "call_subagent", "id": "call_1", "arguments": [delegation]}],
        },
        {"match": {"turn": 1, "text": "^work"}, "steps": [{"toolCall": "work", "id": "call_2", "arguments": ["{}"]}]},
        {"steps": [{"content": "fine"}]},
    )


@asynccontextmanager
async def killing_tools(suite: Suite) -> AsyncGenerator[None]:
    """Kill the service when the block starts, and again whenever it is back within AWAY_S."""
    loop = asyncio.get_running_loop()
    until = loop.time() + AWAY_S

    async def kill_again(killed: int) -> None:
        while loop.time() < until:
            if (pid := suite.services().get("tools", killed)) != killed:
                os.kill(pid, signal.SIGKILL)
                killed = pid
            await asyncio.sleep(0.05)

    first = suite.services()["tools"]
    os.kill(first, signal.SIGKILL)
    async with asyncio.TaskGroup() as group:
        group.create_task(kill_again(first))
        yield


async def run_query(suite: Suite, agent: str, on_work: Callable[[], object]) -> list[Event]:
    events: list[Event] = []
    async with suite.query("parent" if agent == "parent" else "work", agent) as stream:
        async for event in stream:
            events.append(event)
            if event["type"] == "tool.output":
                on_work()
    return events


def check_run(events: list[Event], agent: str) -> None:
    check_order(events)
    assert events[-1]["type"] == "run.complete", events[-1]
    [work_result] = [
        event["result"] for event in events if event["type"] == "tool.result" and event["toolId"] == "call_2"
    ]
    assert "done" in work_result
    ends = [event["ok"] for event in events if event["type"] == "subagent.end"]
    assert ends == ([True] if agent == "parent" else [])


@pytest.mark.nightly
async def test_runs_wait_for_a_killed_tools_service_and_complete(tmp_path: Path) -> None:
    async with asyncio.timeout(900), fresh_suite(tmp_path) as suite:
        configure(suite)
        await suite.until_known("worker", "parent", "work")
        working = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            agents = ["worker", "parent"] * (RUNS // 2)
            runs = [(agent, group.create_task(run_query(suite, agent, working.release))) for agent in agents]
            for _ in range(RUNS // 4):
                await working.acquire()  # Some run their tool, others still list tools.
            async with killing_tools(suite):
                for agent in ("worker", "parent") * LATER:
                    runs.append((agent, group.create_task(run_query(suite, agent, working.release))))
                    await asyncio.sleep(0.1 + AWAY_S / (4 * LATER))
        for agent, run in runs:
            check_run(run.result(), agent)
        for request in suite.requests():
            assert_paired(request["messages"])
