"""Owning runs: each has a lease in memory, which this process renews while it is alive.

A new run's lease comes with its query line, so that it costs no round trip before the first event. One task renews all
of them, apart from the tasks of the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from headrace.errors import HeadraceError, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.peers import Peers, peer_errors
from services.orchestrator.run import Run

TTL_MS = 15_000
INTERVAL_S = 5.0
"""A lease and its renewals (operations.md): two may fail."""

RENEWALS_MAX = 32
"""At a time: memory puts each on the disk."""

log = structlog.get_logger()


async def keep(live: Callable[[], Iterable[Run]], peers: Peers, interval_s: float = INTERVAL_S) -> None:
    """Renew the leases of the live runs, until cancelled."""
    gate = asyncio.Semaphore(RENEWALS_MAX)
    while True:
        await asyncio.sleep(interval_s)
        async with asyncio.TaskGroup() as group:
            for run in live():
                if run.is_accepted and not run.log.is_lost:
                    group.create_task(_renew(run, peers, gate))


async def release(run: Run, peers: Peers) -> None:
    """Give the run to whoever asks first."""
    request = memory_pb2.ReleaseLeaseRequest(run_id=run.id, generation=run.log.generation)
    with peer_errors():
        await peers.memory.ReleaseLease(request, timeout=INTERVAL_S)


async def _renew(run: Run, peers: Peers, gate: asyncio.Semaphore) -> None:
    request = memory_pb2.RenewLeaseRequest(run_id=run.id, generation=run.log.generation, ttl_ms=TTL_MS)
    try:
        async with gate:
            with peer_errors():
                await peers.memory.RenewLease(request, timeout=INTERVAL_S)
    except StaleLease:
        if not run.feed.ended:
            log.warning("run lost", run_id=run.id)
            run.log.is_lost = True
            run.give_up()
    except HeadraceError as error:
        log.warning("lease not renewed", run_id=run.id, reason=error.reason)
    except Exception:
        # The supervisor: one run's renewal must not end all others.
        log.exception("lease not renewed", run_id=run.id)
