"""Remote agents: one built with A2A's official SDK, and one of another Headrace, also when processes die."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from headrace.runs.fold import Fold
from tests.support.clients.catalogue import ROOT
from tests.support.clients.network import find_free_port
from tests.support.clients.programs import check_row, find_version, get_environment
from tests.support.order import Event
from tests.support.suite import MODEL, StreamCutError, Suite, fresh_suite

PROGRAM = ROOT / "tests" / "clients" / "python" / "a2a_agent.py"
WORDS = [f"w{number} " for number in range(200)]

ALLOW = {"HEADRACE_ORCHESTRATOR_REMOTE_ALLOW": "127.0.0.1", "HEADRACE_DRAIN_S": "0.2"}


@dataclass
class SdkAgent:
    url: str
    lines: list[str] = field(default_factory=list[str])
    """The lines it printed: the messages and cancels it got."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for(self, line: str) -> None:
        async with asyncio.timeout(120), self.changed:
            await self.changed.wait_for(lambda: line in self.lines)


@asynccontextmanager
async def sdk_agent() -> AsyncGenerator[SdkAgent]:
    python = get_environment("a2a") / "bin" / "python"
    port = find_free_port()
    agent = SdkAgent(f"http://127.0.0.1:{port}")
    process = await asyncio.create_subprocess_exec(python, PROGRAM, str(port), stdout=asyncio.subprocess.PIPE)

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            async with agent.changed:
                agent.lines.append(line.decode().strip())
                agent.changed.notify_all()

    reading = asyncio.create_task(read())
    try:
        await agent.wait_for("serving")
        async with asyncio.timeout(120):
            while not _listens(port):
                await asyncio.sleep(0.05)
        yield agent
    finally:
        process.terminate()
        await process.wait()
        await reading


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def add_agents(suite: Suite, agents: dict[str, dict[str, Any]]) -> None:
    """Write agents' files, and wait until they are in force."""
    for key, agent in agents.items():
        (suite.config_dir / "agents" / f"{key}.json").write_text(json.dumps(agent))
    await suite.until_known(*agents)


def make_remote(card: str, **fields: Any) -> dict[str, Any]:
    return {"mode": "REMOTE", "remote": {"card": card} | fields}


def read_answer(events: list[Event]) -> str:
    fold = Fold()
    for event in events:
        fold.apply(parse_event(json.dumps(event).encode()))
    return fold.answer


def read_deltas(events: list[Event]) -> list[str]:
    return [event["delta"] for event in events if event["type"] == "content.delta"]


async def answer(suite: Suite, gate: Event, payload: Any) -> None:
    body = {"runId": gate["runId"], "toolId": gate["gateId"], "payload": payload}
    status, reply = await suite.post("/api/submit", body)
    assert status == 200, reply


async def ask_and_answer(suite: Suite, message: str, agent: str, payload: Any) -> list[Event]:
    events: list[Event] = []
    run_id = ""
    async with suite.query(message, agent) as event_stream:
        async for event in event_stream:
            events.append(event)
            run_id = event.get("runId", "") or run_id
            if event["type"] == "gate.open":
                await answer(suite, {"runId": run_id, "gateId": event["gateId"]}, payload)
    return events


async def test_a_remote_agent_of_the_a2a_sdk_answers_asks_and_fails(tmp_path: Path) -> None:
    async with asyncio.timeout(900), sdk_agent() as sdk, fresh_suite(tmp_path, **ALLOW) as suite:
        cards = {"rpc": f"{sdk.url}/jsonrpc.json", "rest": f"{sdk.url}/rest.json", "polled": f"{sdk.url}/polled.json"}
        await add_agents(suite, {key: make_remote(card) for key, card in cards.items()})
        for key in cards:
            events = await suite.ask("stream", key)
            assert read_answer(events) == "".join(WORDS), key
            assert events[-1]["type"] == "run.complete"
            if key != "polled":
                assert read_deltas(events) == WORDS, key
            events = await ask_and_answer(suite, "ask", key, "Rome")
            assert read_answer(events).endswith("It rains in Rome."), (key, events)
            for word, reason, text in (
                ("fail", "REMOTE_FAILED", "out of milk"),
                ("reject", "REMOTE_REJECTED", "not my job"),
            ):
                end = (await suite.ask(word, key))[-1]
                assert end["error"]["code"] == reason, (key, end)
                assert end["error"]["message"].endswith(text)
    check_row("a2a-sdk (Python), as a server", find_version(PROGRAM.with_name("a2a.txt"), "a2a-sdk=="))


@pytest.mark.nightly
async def test_a_cancel_of_a_run_cancels_the_remote_task(tmp_path: Path) -> None:
    async with asyncio.timeout(900), sdk_agent() as sdk, fresh_suite(tmp_path, **ALLOW) as suite:
        await add_agents(
            suite, {"rpc": make_remote(f"{sdk.url}/jsonrpc.json"), "rest": make_remote(f"{sdk.url}/rest.json")}
        )
        for number, key in enumerate(("rpc", "rest"), start=1):
            events: list[Event] = []
            async with suite.query("hang", key) as event_stream:
                async for event in event_stream:
                    events.append(event)
                    if event["type"] == "content.delta" and event["delta"] == "w2 ":
                        run_id = next(candidate["runId"] for candidate in events if candidate["type"] == "run.start")
                        await suite.post("/api/cancel", {"runId": run_id})
            assert events[-1]["type"] == "run.cancel"
            async with asyncio.timeout(120), sdk.changed:
                await sdk.changed.wait_for(lambda count=number: sdk.lines.count("cancel") == count)


async def read_past_a_kill(suite: Suite, message: str, agent: str, delta: str, victim: str) -> list[Event]:
    """Read a run, kill its owner at this delta, and read the rest by attaching; return all events."""
    events: list[Event] = []
    try:
        async with suite.query(message, agent) as event_stream:
            async for event in event_stream:
                events.append(event)
                if event["type"] == "content.delta" and event["delta"] == delta:
                    os.kill(suite.services()[victim], signal.SIGKILL)
    except StreamCutError:
        pass
    run_id = next(event["runId"] for event in events if event["type"] == "run.start")
    while events[-1]["type"] not in ("run.complete", "run.error", "run.cancel"):
        try:
            async with suite.attached(run_id, events[-1]["seq"]) as event_stream:
                events += [event async for event in event_stream]
        except (StreamCutError, AssertionError):  # Refused while the orchestrator starts.
            await asyncio.sleep(0.2)
    return events


@pytest.mark.nightly
@pytest.mark.parametrize("binding", ["jsonrpc", "rest"])
async def test_a_run_whose_owner_is_killed_continues_the_same_remote_task(tmp_path: Path, binding: str) -> None:
    suite_of = fresh_suite(tmp_path, form="--split", **ALLOW)
    async with asyncio.timeout(900), sdk_agent() as sdk, suite_of as suite:
        await add_agents(suite, {"far": make_remote(f"{sdk.url}/{binding}.json")})
        events = await read_past_a_kill(suite, "slow", "far", "w3 ", "orchestrator")
        assert events[-1]["type"] == "run.complete", events[-1]
        # The SDK's server subscribes before it reads the task's first state: a word sent in between comes twice.
        words = read_answer(events).split(" ")[:-1]
        assert len(words) <= 41
        assert [f"{word} " for word, _ in groupby(words)] == WORDS[:40]
        assert sdk.lines.count("message slow") == 1


@pytest.mark.nightly
async def test_a_headrace_agent_is_the_remote_agent_of_another(tmp_path: Path) -> None:
    settings = ALLOW | {"HEADRACE_FACADE_PUBLISH": "a2a"}
    async with asyncio.timeout(900), fresh_suite(tmp_path, form="--split", **settings) as suite:
        asking = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["ask_human"]}, "react": {}}
        await add_agents(suite, {"asking": asking})
        card = f"{suite.url}/a2a/{{}}/.well-known/agent-card.json"
        await add_agents(
            suite,
            {
                "mirror": make_remote(card.format("plain"), effect="idempotent"),
                "asker": make_remote(card.format("asking"), effect="idempotent"),
            },
        )
        suite.play({"steps": [{"content": ["one ", "two ", "three"]}]})
        events = await suite.ask("hello", "mirror")
        assert read_deltas(events) == ["one ", "two ", "three"]
        assert read_answer(events) == "one two three"

        call = {"toolCall": "ask_human", "id": "c1", "arguments": ['{"question":"Which city?"}']}
        suite.play(
            {"match": {"turn": 2}, "steps": [{"content": "It rains in Rome."}]},
            {"steps": [{"content": "Let me ask. "}, call]},
        )
        events = await ask_and_answer(suite, "hello", "asker", {"answer": "Rome"})
        assert read_answer(events).endswith("It rains in Rome."), json.dumps(events[-14:])
        questions = [event["toolParams"]["question"] for event in events if event["type"] == "tool.end"]
        assert questions == ["Which city?"]

        # Both runs belong to the process that is killed, and both continue: the one follows the other.
        suite.play({"steps": [{"content": ["one ", "two "]}, {"waitMs": 3000}, {"content": "three"}]})
        before = len(suite.requests())
        events = await read_past_a_kill(suite, "hello", "mirror", "two ", "orchestrator")
        assert events[-1]["type"] == "run.complete", events[-1]
        assert read_answer(events) == "one two three"
        assert len(suite.requests()) == before + 2  # The inner run asks its provider again.
