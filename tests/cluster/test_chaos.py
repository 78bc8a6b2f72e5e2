"""Processes are killed, links cut and services restarted: every run ends once and with a true state, nothing
acknowledged is lost, and no effect happens twice. CLUSTER_ROUNDS and CLUSTER_RUNS set the number of rounds and of
concurrent runs.
"""

import asyncio
import os
import random
from contextlib import suppress

import pytest
import structlog

from tests.support.postgresql import needs_postgres
from trials.chaos.cluster import Cluster
from trials.chaos.harms import Load, Up, harms, outcome
from trials.chaos.judging import find_problems, read_lines

ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "10"))
RUNS = int(os.environ.get("CLUSTER_RUNS", "6"))
ROUNDS_IN_CHECK, RUNS_IN_CHECK = 2, 2
SEED = int(os.environ.get("CLUSTER_SEED", "1"))
"""A soak sets another one each time."""

CUT_S = 5.0 if ROUNDS > 10 else 1.0
PAUSE_S = (0.1, 0.7)
"""Pause between two rounds."""

TIMEOUT_S = 600 + ROUNDS * 200
"""For all rounds, and for checking the runs afterwards."""

FAILED_RATIO_MAX = 0.1
"""Of all runs; with few runs, as many as are live at one time."""

SHOWN_MAX = 5
"""Number of broken runs that are printed."""

log = structlog.get_logger()


@needs_postgres
@pytest.mark.parametrize(
    ("rounds", "runs"), [(ROUNDS_IN_CHECK, RUNS_IN_CHECK), pytest.param(ROUNDS, RUNS, marks=pytest.mark.nightly)]
)
async def test_every_run_ends_once_with_a_true_state_whatever_fails(start_cluster: Up, rounds: int, runs: int) -> None:
    chance = random.Random(SEED)
    log.info("seed", seed=SEED)
    async with start_cluster() as (cluster, asker):
        load = Load(asker, "counter")
        with suppress(TimeoutError):  # a run without an end is reported below
            await break_cluster_under_load(load, cluster, rounds, runs, chance)
        ends = load.ends()
        log.info(
            "over",
            runs=len(load.asked),
            ends=dict(ends),
            attaches=sum(run.attaches for run in load.asked),
            failures=sum(len(run.failures) for run in load.asked),
            wait_s_max=round(max(run.wait_s for run in load.asked), 1),
        )
        for run in load.asked:
            if outcome(run) != "run.complete":
                last = [event["type"] for event in run.events[-4:]]
                log.info("not complete", run_id=run.run_id, chat_id=run.chat_id, last=last, end=run.end)
        lines = await read_lines(cluster)
        async with asyncio.timeout(TIMEOUT_S):
            found = [await find_problems(cluster, asker, run, lines[run.chat_id]) for run in load.asked]
    broken = [
        f"{run.run_id or run.request_id}: {problem}" for run, problem in zip(load.asked, found, strict=True) if problem
    ]
    assert not broken, f"{len(broken)} of {len(found)} runs, seed {SEED}: " + "\n".join(broken[:SHOWN_MAX])
    assert len(found) - ends["run.complete"] <= max(FAILED_RATIO_MAX * len(found), runs), ends


async def break_cluster_under_load(load: Load, cluster: Cluster, rounds: int, runs: int, chance: random.Random) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for _ in range(runs):
            group.create_task(load.keep_asking())
        for what, harm in harms(cluster, rounds, CUT_S, chance):
            await asyncio.sleep(chance.uniform(*PAUSE_S))
            log.info("harm", what=what, runs=len(load.asked))
            await harm()
        load.is_over = True
