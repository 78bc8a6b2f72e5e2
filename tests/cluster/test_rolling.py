"""A new version of everything, one replica after the other, under load: nobody is refused, nobody comes back twice."""

import asyncio
from collections.abc import Iterable

import pytest
import structlog

from tests.support.order import check_order, fold
from tests.support.postgresql import needs_postgres
from trials.chaos.asking import Asked, Asker
from trials.chaos.cluster import NAMES, Cluster
from trials.chaos.harms import Load, Up

RUNS = 5

log = structlog.get_logger()


@pytest.mark.nightly
@needs_postgres
async def test_a_rolling_restart_fails_no_request(up: Up) -> None:
    async with up() as (cluster, asker):
        load = Load(asker, "counter")
        async with asyncio.timeout(900), asyncio.TaskGroup() as group:
            for _ in range(RUNS):
                group.create_task(load.keep_asking())
            for name, url in zip(NAMES, cluster.urls, strict=True):
                # As what is in front of it does, which sees that it is not ready.
                asker.urls = [other for other in cluster.urls if other != url]
                await restarted(cluster, name, "facade")
                asker.urls = cluster.urls
            for name in NAMES:
                while not await handed_over(cluster, asker, name):
                    pass
            for name in NAMES:
                await restarted(cluster, name, "memory", "llm_gateway", "tools")
            await switched_over(cluster)
            load.is_over = True
        log.info("over", runs=len(load.asked), attaches=sum(run.attaches for run in load.asked))
        await check_all(asker, load.asked)


async def restarted(cluster: Cluster, name: str, *services: str) -> None:
    await asyncio.gather(*(cluster.stop(f"{service}-{name}") for service in services))
    await asyncio.gather(*(cluster.start(f"{service}-{name}") for service in services))


async def switched_over(cluster: Cluster) -> None:
    """Have the database's standby take the place of its primary, as for a new version of PostgreSQL."""
    await asyncio.to_thread(cluster.database.primary.stop)
    await asyncio.to_thread(cluster.database.promote)
    await asyncio.to_thread(cluster.database.follow)


async def handed_over(cluster: Cluster, asker: Asker, name: str) -> bool:
    """Restart an orchestrator under runs that take longer than its grace; False: it had none of them."""
    asked = [Asked() for _ in range(RUNS)]
    async with asyncio.TaskGroup() as group:
        for run in asked:
            group.create_task(asker.ask(run, "slow", "counter"))
        while not all(any(event["type"] == "content.delta" for event in run.events) for run in asked):
            await asyncio.sleep(0.02)
        await restarted(cluster, name, "orchestrator")
    reasons = [event["reason"] for run in asked for event in run.events if event["type"] == "attempt.reset"]
    log.info("handed over", name=name, reasons=reasons, wait_s_max=max(run.wait_s for run in asked))
    assert set(reasons) <= {"HANDED_OVER"}, "given up by its owner: no lease had to run out"
    await check_all(asker, asked)
    return bool(reasons)


async def check_all(asker: Asker, asked: Iterable[Asked]) -> None:
    for run in asked:
        assert not run.failures, (run.run_id, run.failures)
        assert run.attaches <= 1, (run.run_id, run.attaches)
        assert run.end is not None
        assert run.end["type"] == "run.complete", run.end
        if not run.attaches:
            check_order(run.events)
        assert fold(await asker.folded_again(run)) == fold(run.events), run.run_id
