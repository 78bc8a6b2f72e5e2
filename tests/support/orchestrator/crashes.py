"""Orchestrators that die in the middle of a run, and those that go on with it."""

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
    """A client of another orchestrator, whose address is the suite's now: the same owner, or one with this name."""
    config = replace(suite.config, advertise=name)
    async with orchestrator(config) as running, open_client(running.addresses[0]) as client:
        suite.address = running.addresses[0]
        yield client


class Crashes:
    """Orchestrators that die in the middle of a run: memory takes nothing of it from them any more."""

    def __init__(self, suite: Suite) -> None:
        self._dead: dict[str, int] = {}
        self._at = -1
        self.appends: Counter[str] = Counter()
        """Of each run, taken."""
        suite.memory.before = self._before
        suite.memory.before_release = self._before_release

    def kill(self, run_id: str, generation: int = 0) -> None:
        """Let the owner of this generation die now."""
        self._dead[run_id] = generation

    def kill_at(self, append: int) -> None:
        """Let the owner of each later run die at this append, which is not taken, once."""
        self._at = append

    async def _before(self, request: memory_pb2.AppendRequest) -> None:
        run_id = request.run_id
        # Whoever takes a run over repeats its query, which is no line more.
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
    """What a reader saw of a run in a new chat whose process dies at this append, or after so many events; or not."""
    crashes.kill_at(append)
    seen: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key=agent, chat_id=str(uuid.uuid4())) as deltas:
        async for delta in deltas:
            seen.append(as_json(delta))
            if len(seen) == event:
                crashes.kill(run_of(seen))
                break
    crashes.kill_at(-1)
    return seen


async def run_whole(suite: Suite, crashes: Crashes, agent: str = "react") -> tuple[list[Event], int]:
    """A run whose process does not die, and how many appends it made."""
    whole = await run_killed(suite, crashes, agent)
    return whole, crashes.appends[run_of(whole)]


def known(events: list[Event]) -> dict[str, Any]:
    """What a reader knows in the end, apart from ids and numbers that differ from run to run, and from the order in
    which parallel tasks speak."""
    folded = fold(events)
    blocks = [ID.sub("#", json.dumps(block, sort_keys=True)) for block in folded["blocks"].values()]
    files = [event["name"] for event in events if event["type"] == "artifact.publish"]
    plan = [[task["description"], task["status"]] for event in events for task in event.get("plan", ())]
    tasks = sorted(event["type"] for event in events if event["type"] in ("task.start", "task.complete", "task.fail"))
    return {"blocks": sorted(blocks), "files": files, "plan": dict(plan), "tasks": tasks, "end": folded["end"]["type"]}


async def check_resumed(suite: Suite, world: World, seen: list[Event], *, seqs_max: int = 10_000) -> list[Event]:
    """The whole of a run whose process died, to its end by the next one; everything that must hold is looked at."""
    run_id, chat_id = run_of(seen), next(event["chatId"] for event in seen if event["type"] == "request.query")
    async with restart(suite) as client:
        rest = await read(client, run_id, seen[-1]["seq"])
        whole = [*seen, *rest]
        seqs = [event["seq"] for event in whole]
        assert seqs == sorted(seqs)
        assert [event["type"] for event in whole if event["type"] in TERMINAL] == [whole[-1]["type"]]
        later = [event["type"] for event in rest if event["seq"] > 1_000_000]
        # There are none where the reader was so far behind that the run had ended before its process died.
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
    """Numbered without gaps, each line once, each call with one result, one end."""
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


def changes_of(changes: dict[str, Any]) -> dict[str, Any]:
    return {"toolConfig": {"backends": ["look", "act", "fails"]}} | changes


async def run_until(suite: Suite, until: str, **fields: Any) -> list[Event]:
    """What was seen of a run whose process died at the first event of this type."""
    crashes = Crashes(suite)
    given: dict[str, Any] = {"agent_key": "react", "chat_id": CHAT} | fields
    async with suite.client.ask("hello", **given) as deltas:
        seen = await read_until(deltas, until)
        crashes.kill(run_of(seen))
    await suite.stop()
    return seen


async def read_rest(client: Client, events: list[Event]) -> list[Event]:
    return await read(client, run_of(events), events[-1]["seq"])
