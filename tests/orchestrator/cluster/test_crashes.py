"""A process dies in the middle of a run, at every line of the log and at random events, and the next one continues it.

Acknowledged lines are stored once, and effects happen once. A reader that attaches again, wherever it was cut off, ends
with the same events as an uninterrupted one. A run that nobody continues ends with nothing left open.
HEADRACE_SOAK_ROUNDS sets the number of random rounds.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import NotFound
from headrace.event_json import parse_event
from headrace.runs.fold import Fold
from services.orchestrator.calls.results import is_refusal
from services.orchestrator.lifecycle.finish import INTERRUPTED_RESULT
from tests.support.orchestrator import Serve, Suite, answer, assert_paired, content, finish, read
from tests.support.orchestrator.crashes import (
    Crashes,
    assert_whole,
    check_resumed,
    restart,
    run_killed,
    run_whole,
    summarise_outcome,
    with_tools,
)
from tests.support.orchestrator.events import ask_for, read_until, run_of
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.order import TERMINAL, Event, fold
from tests.support.tiers import Take, at_places

SEQS_MAX = 12
"""Number of seqs at which a reader attaches after a death at a log line; after a death at an event, it tries all."""

SUITE_ROUNDS = 10
"""Runs of one suite, whose time is limited and whose logs grow."""

CHECK_ROUNDS = 5
ROUNDS = int(os.environ.get("HEADRACE_SOAK_ROUNDS", "50"))


@at_places
@pytest.mark.parametrize("case", RUNS)
async def test_a_run_killed_at_any_line_of_the_log_is_continued_by_the_next_process(
    serve: Serve, case: str, take: Take
) -> None:
    agent, play, changes = RUNS[case]
    async with serve(**with_tools(changes)) as suite:
        await suite.stop()
        world, crashes = World(suite, play), Crashes(suite)
        undisturbed, appends = await run_whole(suite, crashes, agent)
        for append in take(range(1, appends), case):
            events_before = await run_killed(suite, crashes, agent, append=append)
            assert events_before[-1]["type"] not in TERMINAL
            whole = await check_resumed(suite, world, events_before, seqs_max=SEQS_MAX)
            assert summarise_outcome(whole) == summarise_outcome(undisturbed), append
            for calls in ("modelCalls", "toolCalls"):
                assert whole[-1]["usage"][calls] == undisturbed[-1]["usage"][calls], append


@pytest.mark.parametrize("count", [CHECK_ROUNDS, pytest.param(ROUNDS, marks=pytest.mark.nightly)])
async def test_a_run_killed_at_any_event_is_continued_by_the_next_process(serve: Serve, count: int) -> None:
    rounds = random.Random(7)
    cases = rounds.sample(list(RUNS), min(count, len(RUNS))) * (-(-count // len(RUNS) // SUITE_ROUNDS) or 1)
    for case in cases:
        agent, play, changes = RUNS[case]
        async with serve(**with_tools(changes)) as suite:
            await suite.stop()
            world, crashes = World(suite, play), Crashes(suite)
            undisturbed, _ = await run_whole(suite, crashes, agent)
            for _ in range(-(-count // len(cases))):
                events_before = await run_killed(suite, crashes, agent, event=rounds.randrange(3, len(undisturbed)))
                assert summarise_outcome(await check_resumed(suite, world, events_before)) == summarise_outcome(
                    undisturbed
                ), case


CASES = ("what is done once", "several at a time", "a plan, two at a time", "sub-agents", "a recursive plan")


async def read_interrupted(suite: Suite, events_before: list[Event]) -> list[Event]:
    """Return all events of a run whose process died and whose agent is gone; check readers at any point."""
    async with restart(suite) as client:
        whole = [*events_before, *await read(client, run_of(events_before), events_before[-1]["seq"])]
        for index in range(0, len(whole), max(1, len(whole) // 8)):
            after = await read(client, run_of(events_before), whole[index - 1]["seq"] if index else 0)
            assert fold([*whole[:index], *after]) == fold(whole), index
        suite.llm.reply = lambda _: answer("Fine.")
        after = await ask_for(client, "and then?", agent_key="oneshot", chat_id=whole[0]["chatId"])
        assert after[-1]["type"] == "run.complete"
    return whole


def check_closed(whole: list[Event]) -> None:
    state = Fold()
    for event in whole:
        state.apply(parse_event(json.dumps(event).encode()))
    assert all(subagent.ok is not None for subagent in state.subagents.values())
    assert all(task.status != "started" for task in state.tasks.values())
    assert all(block.is_complete for block in state.blocks.values())
    assert all(block.result is not None for block in state.blocks.values() if block.is_call)


def count_logged(lines: list[dict[str, Any]]) -> dict[str, int]:
    messages = [message for line in lines if line["_type"] == "step" for message in line["messages"]]
    answers = {message["_msgId"] for message in messages if message["role"] == "assistant"}
    results = [message["content"][0]["text"] for message in messages if message["role"] == "tool"]
    calls = sum(not is_refusal(text) and text != INTERRUPTED_RESULT for text in results)
    tokens = {"inputTokens": 10 * len(answers), "outputTokens": 5 * len(answers)}
    return {"modelCalls": len(answers), "toolCalls": calls} | tokens


async def test_the_recording_of_an_interrupted_run_is_refused_with_the_reason(serve: Serve) -> None:
    async with serve(content("one ") + content("two") + finish()) as suite:
        await suite.stop()
        suite.memory.keeps_versions = False
        crashes = Crashes(suite)
        async with restart(suite) as client, client.ask("hello", agent_key="react", record=True) as deltas:
            events_before = await read_until(deltas, "content.delta")
            crashes.kill(run_of(events_before))
        (suite.agents / "react.json").unlink()
        async with restart(suite) as client:
            assert (await read(client, run_of(events_before), 0))[-1]["error"]["code"] == "INTERRUPTED"
            with pytest.raises(NotFound, match="another process has gone on with it"):
                await client.cassette(run_of(events_before))


@at_places
@pytest.mark.parametrize("case", CASES)
async def test_an_interrupted_run_leaves_no_block_call_task_or_sub_agent_open(
    serve: Serve, tmp_path: Path, case: str, take: Take
) -> None:
    agent, play, changes = RUNS[case]
    async with serve(**with_tools(changes)) as suite:
        await suite.stop()
        suite.memory.keeps_versions = False
        World(suite, play)
        crashes, reply, file = Crashes(suite), suite.llm.reply, suite.agents / f"{agent}.json"
        definition = file.read_text()
        _, appends = await run_whole(suite, crashes, agent)
        for append in take(range(1, appends), case):
            suite.llm.reply = reply
            events_before = await run_killed(suite, crashes, agent, append=append)
            file.unlink()
            whole = await read_interrupted(suite, events_before)
            file.write_text(definition)
            assert [event["type"] for event in whole if event["type"] in TERMINAL] == ["run.error"]
            assert whole[-1]["error"]["code"] == "INTERRUPTED"
            check_closed(whole)
            log = (tmp_path / "data" / "chats" / f"{whole[0]['chatId']}.json").read_text()
            lines = [json.loads(line) for line in log.splitlines()]
            assert_whole(lines, run_of(whole))
            usage = whole[-1]["usage"]
            expected = count_logged([line for line in lines if line.get("runId") == run_of(whole)])
            assert {key: usage[key] for key in expected} == expected
            assert_paired(suite.llm.requests[-1])
