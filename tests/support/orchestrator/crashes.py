"""Orchestrators that die in the middle of a run, and those that continue it."""

import json
import re
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from headrace.client import Client
from headrace.errors import StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.server import orchestrator
from tests.support.local_client import open_client
from tests.support.orchestrator.events import as_json, read, read_until, run_of
from tests.support.orchestrator.people import CHAT
from tests.support.orchestrator.recorded_runs import ONCE, World
from tests.support.orchestrator.requests import assert_paired
from tests.support.orchestrator.suite import Suite
from tests.support.order import TERMINAL, Event, fold


@asynccontextmanager
async def restart(suite: Suite, name: str = "") -> AsyncGenerator[Client]:
    """Start another orchestrator in place of the suite's, as the same owner or with this name; yield a client of it."""
    config = replace(suite.config, advertise=name)
    async with orchestrator(config) as running, open_client(running.addresses[0]) as client:
        suite.address = running.addresses[0]
        yield client


class Crashes:
    """Simulates dead orchestrators: memory refuses every further append of theirs for a run."""

    def __init__(self, suite: Suite) -> None:
        self._dead: dict[str, int] = {}
        self._at = -1
        self.appends: Counter[str] = Counter()
        """Number of accepted appends of each run."""
        suite.memory.before = self._before
        suite.memory.before_release = self._before_release

    def kill(self, run_id: str, generation: int = 0) -> None:
        """Treat the run's owner of this generation as dead from now on."""
        self._dead[run_id] = generation

    def kill_at(self, append: int) -> None:
        """Kill the owner of each later run once, at this append, which is refused."""
        self._at = append

    async def _before(self, request: memory_pb2.AppendRequest) -> None:
        run_id = request.run_id
        # A new owner repeats the run's query, which adds no line.
        is_new = not self.appends[run_id] or not any(line.HasField("query") for line in request.lines)
        if is_new and run_id not in self._dead and self.appends[run_id] == self._at:
            self.kill(run_id, request.generation)
        self._refuse_the_dead(run_id, request.generation)
        self.appends[run_id] += is_new

    async def _before_release(self, request: memory_pb2.ReleaseLeaseRequest) -> None:
        self._refuse_the_dead(request.run_id, request.generation)

    def _refuse_the_dead(self, run_id: str, generation: int) -> None:
        if generation <= self._dead.get(run_id, -1):
            raise StaleLease("this process is dead")


ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}")


async def run_killed(
    suite: Suite, crashes: Crashes, agent: str = "react", *, append: int = -1, event: int = 0
) -> list[Event]:
    """Run in a new chat; kill the process at this append or after this number of events, if given; return events."""
    crashes.kill_at(append)
    events: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key=agent, chat_id=str(uuid.uuid4())) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            if len(events) == event:
                crashes.kill(run_of(events))
                break
    crashes.kill_at(-1)
    return events


async def run_whole(suite: Suite, crashes: Crashes, agent: str = "react") -> tuple[list[Event], int]:
    """Run without a kill; return the events and the number of appends."""
    whole = await run_killed(suite, crashes, agent)
    return whole, crashes.appends[run_of(whole)]


def summarise_outcome(events: list[Event]) -> dict[str, Any]:
    """Return what a reader knows in the end, without ids and numbers that differ between runs, and without the order of
    parallel tasks."""
    folded = fold(events)
    blocks = [ID.sub("#", json.dumps(block, sort_keys=True)) for block in folded["blocks"].values()]
    files = [event["name"] for event in events if event["type"] == "artifact.publish"]
    plan = [[task["description"], task["status"]] for event in events for task in event.get("plan", ())]
    tasks = sorted(event["type"] for event in events if event["type"] in ("task.start", "task.complete", "task.fail"))
    return {"blocks": sorted(blocks), "files": files, "plan": dict(plan), "tasks": tasks, "end": folded["end"]["type"]}


async def check_resumed(
    suite: Suite, world: World, events_before: list[Event], *, seqs_max: int = 10_000
) -> list[Event]:
    """Let the next process finish a run whose process died, and check everything that must hold; return all events."""
    run_id, chat_id = (
        run_of(events_before),
        next(event["chatId"] for event in events_before if event["type"] == "request.query"),
    )
    async with restart(suite) as client:
        events_after = await read(client, run_id, events_before[-1]["seq"])
        whole = [*events_before, *events_after]
        seqs = [event["seq"] for event in whole]
        assert seqs == sorted(seqs)
        assert [event["type"] for event in whole if event["type"] in TERMINAL] == [whole[-1]["type"]]
        later = [event["type"] for event in events_after if event["seq"] > 1_000_000]
        # There are none if the run had ended before its process died, while the reader lagged behind.
        assert later[:1] in (["attempt.reset"], [])
        expected = fold(whole)
        for index in range(0, len(whole), max(1, len(whole) // seqs_max)):
            before = whole[:index]
            assert fold([*before, *await read(client, run_id, before[-1]["seq"] if before else 0)]) == expected
        assert all(count == 1 for (tool, _), count in world.runs.items() if tool == ONCE)
        log = (await suite.kept.log(chat_id)).splitlines()
        assert_whole([json.loads(line) for line in log], run_id)
        async with client.ask("and then?", chat_id=chat_id) as deltas:
            after = [as_json(delta) async for delta in deltas]
        assert after[-1]["type"] == "run.complete"
        assert_paired(suite.llm.requests[-1])
    return whole


def assert_whole(log: list[dict[str, Any]], run_id: str) -> None:
    """Check a log: lines are numbered without gaps, each call has one result, and the run has one end."""
    assert [line["_n"] for line in log] == list(range(1, len(log) + 1))
    assert len({line["uuid"] for line in log}) == len(log)
    lines = [line for line in log if line.get("runId") == run_id]
    assert sum(line["_type"] == "run" for line in lines) == 1
    messages = [message for line in lines if line["_type"] == "step" for message in line["messages"]]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(calls) == sorted(results)
    assert len(set(calls)) == len(calls)
    blocks = [message.get("_contentId") or message.get("_reasoningId") for message in messages]
    named = [block for block in blocks if block]
    assert len(set(named)) == len(named)


def with_tools(changes: dict[str, Any]) -> dict[str, Any]:
    return {"toolConfig": {"backends": ["look", "act", "fails"]}} | changes


async def run_until(suite: Suite, until: str, **fields: Any) -> list[Event]:
    """Run up to the first event of this type and kill the process; return the events so far."""
    crashes = Crashes(suite)
    query_fields: dict[str, Any] = {"agent_key": "react", "chat_id": CHAT} | fields
    async with suite.client.ask("hello", **query_fields) as deltas:
        events = await read_until(deltas, until)
        crashes.kill(run_of(events))
    await suite.stop()
    return events


async def read_rest(client: Client, events: list[Event]) -> list[Event]:
    return await read(client, run_of(events), events[-1]["seq"])
