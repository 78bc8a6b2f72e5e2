"""Whatever is killed, cut or restarted: every run ends once and honestly, nothing acknowledged is lost, nothing that
must not be is done twice. CLUSTER_ROUNDS and CLUSTER_RUNS say how hard it is tried."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from contextlib import suppress
from typing import Any

import aiohttp
import asyncpg
import pytest
import structlog

from tests.support.order import TERMINAL, fold
from tests.support.postgresql import needs_postgres
from trials.chaos.asking import Asked, Asker, Wrong
from trials.chaos.cluster import Cluster
from trials.chaos.harms import Load, Up, harms, outcome

ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "10"))
ROUNDS_IN_CHECK = 3
RUNS = int(os.environ.get("CLUSTER_RUNS", "6"))
SEED = int(os.environ.get("CLUSTER_SEED", "1"))
"""A soak gives another one each time."""

CUT_S = 5.0 if ROUNDS > 10 else 1.0
PAUSE_S = (0.1, 0.7)
"""Between two rounds."""

TIMEOUT_S = 600 + ROUNDS * 200
"""Of all rounds; and of looking at what has become of the runs."""

TAKEOVER_S = 30.0

HONEST = {"run.complete", "PROVIDER_UNAVAILABLE", "STREAM_CUT", "OVERLOADED", "INTERRUPTED", "STREAM_BROKEN"}
"""How a run may end: or fail, when a service behind it dies in mid-answer."""

FAILED_RATIO_MAX = 0.1
"""Of all runs; or as many as are live at one time, where there are few."""

SHOWN_MAX = 5
"""Of the broken runs."""

log = structlog.get_logger()


@needs_postgres
@pytest.mark.parametrize("rounds", [ROUNDS_IN_CHECK, pytest.param(ROUNDS, marks=pytest.mark.nightly)])
async def test_every_run_ends_once_and_honestly_whatever_breaks(up: Up, rounds: int) -> None:
    chance = random.Random(SEED)
    log.info("seed", seed=SEED)
    async with up() as (cluster, asker):
        load = Load(asker, "counter")
        with suppress(TimeoutError):  # which run has no end is told below
            await break_under(load, cluster, rounds, chance)
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
        logs = await lines(cluster)
        async with asyncio.timeout(TIMEOUT_S):
            found = [await problems(cluster, asker, run, logs[run.chat_id]) for run in load.asked]
    broken = [f"{run.run_id or run.request_id}: {each}" for run, each in zip(load.asked, found, strict=True) if each]
    assert not broken, f"{len(broken)} of {len(found)} runs, seed {SEED}: " + "\n".join(broken[:SHOWN_MAX])
    assert len(found) - ends["run.complete"] <= max(FAILED_RATIO_MAX * len(found), RUNS), ends


async def break_under(load: Load, cluster: Cluster, rounds: int, chance: random.Random) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for _ in range(RUNS):
            group.create_task(load.keep_asking())
        for what, harm in harms(cluster, rounds, CUT_S, chance):
            await asyncio.sleep(chance.uniform(*PAUSE_S))
            log.info("harm", what=what, runs=len(load.asked))
            await harm()
        load.is_over = True


async def problems(cluster: Cluster, asker: Asker, run: Asked, log_lines: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the run, all of it."""
    if run.end is None:
        return [run.wrong or f"no end behind {[event['type'] for event in run.events]}, {run.failures}"]
    times = times_done(cluster, run)
    told = [event["result"] for event in run.events if event["type"] == "tool.result" and event["ok"]]
    ran = [line["runId"] for line in log_lines if line["_type"] == "run"]
    checks = {
        "does not fold to the same": await is_same_again(asker, run),
        "has more than one end": sum(event["type"] in TERMINAL for event in run.events) == 1,
        f"ends as {run.end}": outcome(run) in HONEST,
        f"was silent for {run.wait_s} s": run.wait_s < TAKEOVER_S,
        "has lost lines": [line["_n"] for line in log_lines] == list(range(1, len(log_lines) + 1)),
        f"has the runs {ran} in its chat": ran == [run.run_id],
        f"has done it {times} times": times <= 1,
        "tells what was not done": times or not any("done" in result for result in told),
    }
    return [problem for problem, is_well in checks.items() if not is_well]


async def is_same_again(asker: Asker, run: Asked) -> bool:
    """Whether who comes later sees the same; not when it is told that there is nothing."""
    with suppress(aiohttp.ClientError, TimeoutError, Wrong):
        async with asyncio.timeout(300):
            return fold(await asker.folded_again(run)) == fold(run.events)
    return False


def times_done(cluster: Cluster, run: Asked) -> int:
    count = cluster.data_dir / "workspaces" / run.chat_id / "outputs" / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


async def lines(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """All lines of all chats, as the database has them."""
    connection = await asyncpg.connect(cluster.database.url())
    try:
        rows = await connection.fetch(
            "SELECT chat_id, data FROM lines JOIN chats ON chats.id = lines.chat ORDER BY chats.id, n"
        )
    finally:
        await connection.close()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for chat_id, data in rows:
        found[chat_id].append(json.loads(data))
    return found
