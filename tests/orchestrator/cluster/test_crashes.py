"""A process dies in the middle of a run, and the next one goes on: at every line of the log, and at random events.

Whatever was acknowledged is there once, what is done once was done once, and a reader that attaches again, wherever it
was cut off, has in the end what one has that was never cut off. HEADRACE_SOAK_ROUNDS sets the number of random rounds.
"""

from __future__ import annotations

import json
import os
import random
import re
import uuid
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from headrace.client import Client
from headrace.v1 import llm_pb2
from tests.orchestrator.conftest import House, Open, as_json
from tests.orchestrator.owners import Crashes, again
from tests.orchestrator.recorded_runs import ONCE, RUNS, World
from tests.support.order import TERMINAL, Event, fold
from tests.support.pairing import assert_paired

ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}")

SEQS_MAX = 12
"""At which a reader of a run that dies at a line is looked at; one of a run that dies at an event, at each."""

HOUSE_ROUNDS = 10
"""Runs of one house; it has its time, and logs that grow."""

LINES_MAX = 12
"""At which a run is killed; a soak leaves none out."""

ROUNDS = int(os.environ.get("HEADRACE_SOAK_ROUNDS", "50"))


async def read(client: Client, run_id: str, last_seq: int = 0) -> list[Event]:
    """All that comes after `last_seq`."""
    async with client.attach(run_id, last_seq) as deltas:
        return [as_json(delta) async for delta in deltas]


async def killed(it: House, crashes: Crashes, agent: str, kill_at: int | None) -> list[Event]:
    """What a reader saw of a run in a new chat whose process dies after event `kill_at`, or by itself (None)."""
    seen: list[Event] = []
    async with again(it) as client, client.ask("hello", agent_key=agent, chat_id=str(uuid.uuid4())) as deltas:
        async for delta in deltas:
            seen.append(as_json(delta))
            if len(seen) == kill_at:
                crashes.kill(it_run(seen))
                break
    return seen


def it_run(events: list[Event]) -> str:
    return next(event["runId"] for event in events if event["type"] == "run.start")


def known(events: list[Event]) -> tuple[list[str], list[str], str]:
    """What a reader knows in the end, apart from ids and numbers that differ from run to run."""
    folded = fold(events)
    blocks = [ID.sub("#", json.dumps(block, sort_keys=True)) for block in folded["blocks"].values()]
    files = [event["name"] for event in events if event["type"] == "artifact.publish"]
    return sorted(blocks), files, folded["end"]["type"]


async def gone_on_with(it: House, world: World, seen: list[Event], *, seqs_max: int = 10_000) -> list[Event]:
    """The whole of a run whose process died, to its end by the next one; everything that must hold is looked at."""
    run_id, chat_id = it_run(seen), next(event["chatId"] for event in seen if event["type"] == "request.query")
    async with again(it) as client:
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
        log = (await it.kept.log(chat_id)).splitlines()
        assert_whole([json.loads(line) for line in log], run_id)
        async with client.ask("and then?", chat_id=chat_id) as deltas:
            after = [as_json(delta) async for delta in deltas]
        assert after[-1]["type"] == "run.complete"
        assert_paired(as_sent(it.llm.requests[-1]))
    return whole


def as_sent(request: llm_pb2.ChatRequest) -> list[dict[str, Any]]:
    return [MessageToDict(message, preserving_proto_field_name=True) for message in request.messages]


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


@pytest.mark.parametrize("case", RUNS)
async def test_a_process_that_dies_at_any_line_of_the_log_is_followed_by_one_that_goes_on(
    house: Open, case: str
) -> None:
    agent, play, changes = RUNS[case]
    async with house(**changes_of(changes)) as it:
        await it.stop()
        world, crashes = World(it, play), Crashes(it)
        alone = await killed(it, crashes, agent, None)
        expected, appends = known(alone), crashes.appends[it_run(alone)]
        for append in range(1, appends, 1 if ROUNDS > 50 else -(-appends // LINES_MAX)):
            crashes.kill_at(append)
            seen = await killed(it, crashes, agent, None)
            assert seen[-1]["type"] not in TERMINAL
            crashes.kill_at(-1)
            assert known(await gone_on_with(it, world, seen, seqs_max=SEQS_MAX)) == expected


async def test_a_process_may_die_at_any_event(house: Open) -> None:
    rounds = random.Random(7)
    cases = list(RUNS) * (-(-ROUNDS // len(RUNS) // HOUSE_ROUNDS) or 1)
    for case in cases:
        agent, play, changes = RUNS[case]
        async with house(**changes_of(changes)) as it:
            await it.stop()
            world, crashes = World(it, play), Crashes(it)
            alone = await killed(it, crashes, agent, None)
            for _ in range(-(-ROUNDS // len(cases))):
                seen = await killed(it, crashes, agent, rounds.randrange(3, len(alone)))
                assert known(await gone_on_with(it, world, seen)) == known(alone), case


def changes_of(changes: dict[str, Any]) -> dict[str, Any]:
    return {"toolConfig": {"backends": ["look", "act", "fails"]}} | changes
