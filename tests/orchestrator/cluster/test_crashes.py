"""A process dies in the middle of a run, and the next one goes on: at every line of the log, and at random events.

Whatever was acknowledged is there once, what is done once was done once, and a reader that attaches again, wherever it
was cut off, has in the end what one has that was never cut off. A run that nobody goes on with has an end in which
nothing is left open. HEADRACE_SOAK_ROUNDS sets the number of random rounds.
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
    changes_of,
    check_resumed,
    known,
    restart,
    run_killed,
    run_whole,
)
from tests.support.orchestrator.events import ask_for, read_until, run_of
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.order import TERMINAL, Event, fold
from tests.support.tiers import Take, at_places

SEQS_MAX = 12
"""At which a reader of a run that dies at a line is looked at; one of a run that dies at an event, at each."""

SUITE_ROUNDS = 10
"""Runs of one suite; it has its time, and logs that grow."""

CHECK_ROUNDS = 5
ROUNDS = int(os.environ.get("HEADRACE_SOAK_ROUNDS", "50"))


@at_places
@pytest.mark.parametrize("case", RUNS)
async def test_a_process_that_dies_at_any_line_of_the_log_is_followed_by_one_that_goes_on(
    serve: Serve, case: str, take: Take
) -> None:
    agent, play, changes = RUNS[case]
    async with serve(**changes_of(changes)) as suite:
        await suite.stop()
        world, crashes = World(suite, play), Crashes(suite)
        alone, appends = await run_whole(suite, crashes, agent)
        for append in take(range(1, appends), case):
            seen = await run_killed(suite, crashes, agent, append=append)
            assert seen[-1]["type"] not in TERMINAL
            whole = await check_resumed(suite, world, seen, seqs_max=SEQS_MAX)
            assert known(whole) == known(alone), append
            for calls in ("modelCalls", "toolCalls"):
                assert whole[-1]["usage"][calls] == alone[-1]["usage"][calls], append


@pytest.mark.parametrize("count", [CHECK_ROUNDS, pytest.param(ROUNDS, marks=pytest.mark.nightly)])
async def test_a_process_may_die_at_any_event(serve: Serve, count: int) -> None:
    rounds = random.Random(7)
    cases = rounds.sample(list(RUNS), min(count, len(RUNS))) * (-(-count // len(RUNS) // SUITE_ROUNDS) or 1)
    for case in cases:
        agent, play, changes = RUNS[case]
        async with serve(**changes_of(changes)) as suite:
            await suite.stop()
            world, crashes = World(suite, play), Crashes(suite)
            alone, _ = await run_whole(suite, crashes, agent)
            for _ in range(-(-count // len(cases))):
                seen = await run_killed(suite, crashes, agent, event=rounds.randrange(3, len(alone)))
                assert known(await check_resumed(suite, world, seen)) == known(alone), case


CASES = ("what is done once", "several at a time", "a plan, two at a time", "sub-agents", "a recursive plan")


async def ended(suite: Suite, seen: list[Event]) -> list[Event]:
    """The whole of a run whose process died and whose agent is gone; each of its readers has it in the end."""
    async with restart(suite) as client:
        whole = [*seen, *await read(client, run_of(seen), seen[-1]["seq"])]
        for index in range(0, len(whole), max(1, len(whole) // 8)):
            after = await read(client, run_of(seen), whole[index - 1]["seq"] if index else 0)
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


async def test_an_interrupted_run_that_was_to_be_recorded_says_why_it_is_not(serve: Serve) -> None:
    async with serve(content("one ") + content("two") + finish()) as suite:
        await suite.stop()
        suite.memory.keeps_versions = False
        crashes = Crashes(suite)
        async with restart(suite) as client, client.ask("hello", agent_key="react", record=True) as deltas:
            seen = await read_until(deltas, "content.delta")
            crashes.kill(run_of(seen))
        (suite.agents / "react.json").unlink()
        async with restart(suite) as client:
            assert (await read(client, run_of(seen), 0))[-1]["error"]["code"] == "INTERRUPTED"
            with pytest.raises(NotFound, match="another process has gone on with it"):
                await client.cassette(run_of(seen))


@at_places
@pytest.mark.parametrize("case", CASES)
async def test_nothing_is_left_open_by_a_run_that_was_interrupted(
    serve: Serve, tmp_path: Path, case: str, take: Take
) -> None:
    agent, play, changes = RUNS[case]
    async with serve(**changes_of(changes)) as suite:
        await suite.stop()
        suite.memory.keeps_versions = False
        World(suite, play)
        crashes, reply, file = Crashes(suite), suite.llm.reply, suite.agents / f"{agent}.json"
        definition = file.read_text()
        _, appends = await run_whole(suite, crashes, agent)
        for append in take(range(1, appends), case):
            suite.llm.reply = reply
            seen = await run_killed(suite, crashes, agent, append=append)
            file.unlink()
            whole = await ended(suite, seen)
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
