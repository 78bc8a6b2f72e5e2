"""A new version of everything, one replica after the other, under load: nobody is refused, nobody comes back twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from tests.cluster.asking import Asked, Asker
from tests.cluster.chaos import Load
from tests.cluster.cluster import NAMES, Cluster
from tests.cluster.conftest import Up
from tests.memory.conftest import needs_postgres
from tests.order import check_order, fold

RUNS = 5

HAND_OVER_S = 3.0
"""Greatest silence for a reader whose run goes to another replica; a lease is not waited for."""

log = structlog.get_logger()


@needs_postgres
async def test_a_rolling_restart_fails_no_request(cluster: Up) -> None:
    async with cluster() as (it, asker):
        load = Load(asker, "counter")
        async with asyncio.timeout(150), asyncio.TaskGroup() as group:
            for _ in range(RUNS):
                group.create_task(load.keep_asking())
            for name, url in zip(NAMES, it.urls, strict=True):
                # As what is in front of it does, which sees that it is not ready.
                asker.urls = [other for other in it.urls if other != url]
                await restarted(it, name, "facade")
                asker.urls = it.urls
            for name in NAMES:
                await handed_over(it, asker, name)
            for name in NAMES:
                await restarted(it, name, "memory", "llm_gateway", "tools")
            load.is_over = True
        log.info("over", runs=len(load.asked), attaches=sum(run.attaches for run in load.asked))
        await check_all(asker, load.asked)


async def restarted(it: Cluster, name: str, *services: str) -> None:
    await asyncio.gather(*(it.stop(f"{service}-{name}") for service in services))
    await asyncio.gather(*(it.start(f"{service}-{name}") for service in services))


async def handed_over(it: Cluster, asker: Asker, name: str) -> None:
    """Restart an orchestrator that has runs which take longer than its grace."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asker.ask("slow", "counter")) for _ in range(RUNS)]
        await asyncio.sleep(0.7)
        await restarted(it, name, "orchestrator")
    asked = [task.result() for task in tasks]
    moved = [run for run in asked if any(event["type"] == "attempt.reset" for event in run.events)]
    log.info("handed over", name=name, moved=len(moved), wait_s_max=max(run.wait_s for run in asked))
    assert moved
    assert max(run.wait_s for run in asked) < HAND_OVER_S
    await check_all(asker, asked)


async def check_all(asker: Asker, asked: Iterable[Asked]) -> None:
    for run in asked:
        assert not run.failures, (run.run_id, run.failures)
        assert run.attaches <= 1, (run.run_id, run.attaches)
        assert run.end is not None
        assert run.end["type"] == "run.complete", run.end
        if not run.attaches:
            check_order(run.events)
        assert fold(await asker.folded_again(run)) == fold(run.events), run.run_id
