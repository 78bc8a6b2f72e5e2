"""Whatever is killed, cut or restarted: every run ends once and honestly, nothing acknowledged is lost, nothing that
must not be is done twice. CLUSTER_ROUNDS and CLUSTER_RUNS say how hard it is tried."""

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
"""A soak gives another one each time."""

CUT_S = 5.0 if ROUNDS > 10 else 1.0
PAUSE_S = (0.1, 0.7)
"""Between two rounds."""

TIMEOUT_S = 600 + ROUNDS * 200
"""Of all rounds; and of looking at what has become of the runs."""

FAILED_RATIO_MAX = 0.1
"""Of all runs; or as many as are live at one time, where there are few."""

SHOWN_MAX = 5
"""Of the broken runs."""

log = structlog.get_logger()


@needs_postgres
@pytest.mark.parametrize(
    ("rounds", "runs"), [(ROUNDS_IN_CHECK, RUNS_IN_CHECK), pytest.param(ROUNDS, RUNS, marks=pytest.mark.nightly)]
)
async def test_every_run_ends_once_and_honestly_whatever_breaks(up: Up, rounds: int, runs: int) -> None:
    chance = random.Random(SEED)
    log.info("seed", seed=SEED)
    async with up() as (cluster, asker):
        load = Load(asker, "counter")
        with suppress(TimeoutError):  # which run has no end is told below
            await break_under(load, cluster, rounds, runs, chance)
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
    broken = [f"{run.run_id or run.request_id}: {each}" for run, each in zip(load.asked, found, strict=True) if each]
    assert not broken, f"{len(broken)} of {len(found)} runs, seed {SEED}: " + "\n".join(broken[:SHOWN_MAX])
    assert len(found) - ends["run.complete"] <= max(FAILED_RATIO_MAX * len(found), runs), ends


async def break_under(load: Load, cluster: Cluster, rounds: int, runs: int, chance: random.Random) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for _ in range(runs):
            group.create_task(load.keep_asking())
        for what, harm in harms(cluster, rounds, CUT_S, chance):
            await asyncio.sleep(chance.uniform(*PAUSE_S))
            log.info("harm", what=what, runs=len(load.asked))
            await harm()
        load.is_over = True
