"""Whatever is killed, cut or restarted: every run ends once and honestly, nothing acknowledged is lost, nothing that
must not be is done twice. CLUSTER_ROUNDS and CLUSTER_RUNS say how hard it is tried."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from typing import Any

import asyncpg
import structlog

from tests.cluster.asking import Asked
from tests.cluster.chaos import Load, harms
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import Up
from tests.memory.conftest import needs_postgres
from tests.order import TERMINAL, fold

ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "10"))
RUNS = int(os.environ.get("CLUSTER_RUNS", "6"))
SEED = int(os.environ.get("CLUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)

CUT_S = 5.0 if ROUNDS > 10 else 1.0
PAUSE_S = (0.1, 0.7)
"""Between two rounds."""

TAKEOVER_S = 30.0

HONEST = {"PROVIDER_UNAVAILABLE", "STREAM_CUT", "OVERLOADED", "INTERRUPTED", "STREAM_BROKEN"}
"""What a run may fail with when a service behind it dies in mid-answer."""

log = structlog.get_logger()


@needs_postgres
async def test_every_run_ends_once_and_honestly_whatever_breaks(cluster: Up) -> None:
    chance = random.Random(SEED)
    log.info("seed", seed=SEED)
    async with cluster() as (it, asker):
        load = Load(asker, "counter")
        async with asyncio.timeout(60 + ROUNDS * 20), asyncio.TaskGroup() as group:
            for _ in range(RUNS):
                group.create_task(load.keep_asking())
            for what, harm in harms(it, ROUNDS, CUT_S, chance):
                await asyncio.sleep(chance.uniform(*PAUSE_S))
                log.info("harm", what=what, runs=len(load.asked))
                await harm()
            load.is_over = True
        log.info(
            "over",
            runs=len(load.asked),
            ends=dict(load.ends()),
            attaches=sum(run.attaches for run in load.asked),
            failures=sum(len(run.failures) for run in load.asked),
            wait_s_max=round(max(run.wait_s for run in load.asked), 1),
        )
        logs = await lines(it)
        for run in load.asked:
            check_run(it, run, logs[run.chat_id])
            async with asyncio.timeout(30):
                assert fold(await asker.folded_again(run)) == fold(run.events), run.run_id


def check_run(it: Cluster, run: Asked, log_lines: list[dict[str, Any]]) -> None:
    assert run.end is not None
    assert [event["type"] for event in run.events if event["type"] in TERMINAL] == [run.end["type"]]
    assert run.end["type"] == "run.complete" or run.end["error"]["code"] in HONEST, (run.run_id, run.end)
    assert run.wait_s < TAKEOVER_S, run.run_id
    assert [line["_n"] for line in log_lines] == list(range(1, len(log_lines) + 1)), run.chat_id
    assert [line["runId"] for line in log_lines if line["_type"] == "run"] == [run.run_id]
    count = it.data_dir / "workspaces" / run.chat_id / "outputs" / "count"
    times = len(count.read_text().splitlines()) if count.exists() else 0
    done = [event["result"] for event in run.events if event["type"] == "tool.result" and event["ok"]]
    assert times <= 1, f"{run.run_id} has run it {times} times"
    assert times or not any("done" in result for result in done), "what is told was done"


async def lines(it: Cluster) -> dict[str, list[dict[str, Any]]]:
    """All lines of all chats, as the database has them."""
    connection = await asyncpg.connect(it.database.url())
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
