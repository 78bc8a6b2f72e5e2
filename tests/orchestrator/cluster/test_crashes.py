"""A process dies in the middle of a run, and the next one goes on: at every line of the log, and at random events.

Whatever was acknowledged is there once, what is done once was done once, and a reader that attaches again, wherever it
was cut off, has in the end what one has that was never cut off. HEADRACE_SOAK_ROUNDS sets the number of random rounds.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.orchestrator import Serve
from tests.support.orchestrator.crashes import Crashes, changes_of, check_resumed, known, run_killed, run_whole
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.order import TERMINAL
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
