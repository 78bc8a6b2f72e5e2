"""Everything is replaced by a new version, one replica after the other, under load: no request is refused, and no
client must reattach twice.
"""

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
async def test_a_rolling_restart_fails_no_request(start_cluster: Up) -> None:
    async with start_cluster() as (cluster, asker):
        load = Load(asker, "counter")
        async with asyncio.timeout(900), asyncio.TaskGroup() as group:
            for _ in range(RUNS):
                group.create_task(load.keep_asking())
            for name, url in zip(NAMES, cluster.urls, strict=True):
                # Like a load balancer, which sees that it is not ready.
                asker.urls = [other for other in cluster.urls if other != url]
                await restart_services(cluster, name, "facade")
                asker.urls = cluster.urls
            for name in NAMES:
                while not await hand_over_runs(cluster, asker, name):
                    pass
            for name in NAMES:
                await restart_services(cluster, name, "memory", "llm_gateway", "tools")
            await switch_database(cluster)
            load.is_over = True
        log.info("over", runs=len(load.asked), attaches=sum(run.attaches for run in load.asked))
        await check_all(asker, load.asked)


async def restart_services(cluster: Cluster, name: str, *services: str) -> None:
    await asyncio.gather(*(cluster.stop(f"{service}-{name}") for service in services))
    await asyncio.gather(*(cluster.start(f"{service}-{name}") for service in services))


async def switch_database(cluster: Cluster) -> None:
    """Promote the database's standby and replace the primary, as for a new version of PostgreSQL."""
    await asyncio.to_thread(cluster.database.primary.stop)
    await asyncio.to_thread(cluster.database.promote)
    await asyncio.to_thread(cluster.database.follow)


async def hand_over_runs(cluster: Cluster, asker: Asker, name: str) -> bool:
    """Restart an orchestrator under runs that take longer than its grace period; return False if it had none of
    them."""
    queries = [Asked() for _ in range(RUNS)]
    async with asyncio.TaskGroup() as group:
        for run in queries:
            group.create_task(asker.ask(run, "slow", "counter"))
        while not all(any(event["type"] == "content.delta" for event in run.events) for run in queries):
            await asyncio.sleep(0.02)
        await restart_services(cluster, name, "orchestrator")
    reasons = [event["reason"] for run in queries for event in run.events if event["type"] == "attempt.reset"]
    log.info("handed over", name=name, reasons=reasons, wait_s_max=max(run.wait_s for run in queries))
    assert set(reasons) <= {"HANDED_OVER"}, "given up by its owner: no lease had to run out"
    await check_all(asker, queries)
    return bool(reasons)


async def check_all(asker: Asker, queries: Iterable[Asked]) -> None:
    for run in queries:
        assert not run.failures, (run.run_id, run.failures)
        assert run.attaches <= 1, (run.run_id, run.attaches)
        assert run.end is not None
        assert run.end["type"] == "run.complete", run.end
        if not run.attaches:
            check_order(run.events)
        assert fold(await asker.folded_again(run)) == fold(run.events), run.run_id
