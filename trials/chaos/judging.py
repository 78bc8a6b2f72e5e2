"""Invariants of a run, whatever was killed or cut."""

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

import aiohttp
import asyncpg

from tests.support.order import TERMINAL, fold
from trials.chaos.asking import Asked, Asker, Wrong
from trials.chaos.cluster import Cluster
from trials.chaos.harms import outcome

TAKEOVER_S = 30.0

HONEST = {"run.complete", "PROVIDER_UNAVAILABLE", "STREAM_CUT", "OVERLOADED", "INTERRUPTED", "STREAM_BROKEN"}
"""Possible ends of a run; it may also fail if a service dies in the middle of an answer."""


async def find_problems(cluster: Cluster, asker: Asker, run: Asked, log_lines: list[dict[str, Any]]) -> list[str]:
    """Return all problems of the run."""
    if run.end is None:
        return [run.wrong or f"no end after {[event['type'] for event in run.events]}, {run.failures}"]
    times = count_times_done(cluster, run)
    results = [event["result"] for event in run.events if event["type"] == "tool.result" and event["ok"]]
    ran = [line["runId"] for line in log_lines if line["_type"] == "run"]
    checks = {
        "does not fold to the same": await is_same_again(asker, run),
        "has more than one end": sum(event["type"] in TERMINAL for event in run.events) == 1,
        f"ends as {run.end}": outcome(run) in HONEST,
        f"was silent for {run.wait_s} s": run.wait_s < TAKEOVER_S,
        "has lost lines": [line["_n"] for line in log_lines] == list(range(1, len(log_lines) + 1)),
        f"has the runs {ran} in its chat": ran == [run.run_id],
        f"has done it {times} times": times <= 1,
        "tells what was not done": times or not any("done" in result for result in results),
    }
    return [problem for problem, is_well in checks.items() if not is_well]


async def is_same_again(asker: Asker, run: Asked) -> bool:
    """Return whether a later reader sees the same run; False if the run is not found."""
    with suppress(aiohttp.ClientError, TimeoutError, Wrong):
        async with asyncio.timeout(300):
            return fold(await asker.folded_again(run)) == fold(run.events)
    return False


def count_times_done(cluster: Cluster, run: Asked) -> int:
    count = cluster.data_dir / "workspaces" / run.chat_id / "outputs" / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


async def read_lines(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """Return all lines of all chats in the database."""
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
