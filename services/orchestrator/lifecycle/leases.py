"""Renews the leases of live runs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.orchestrator.lifecycle.live_runs import HeldRun, HeldRuns
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import acting_as

RELEASE_TIMEOUT_S = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Owner:
    address: str
    """Address of the owner. A process that starts with the same address takes over the earlier one's runs."""
    lease_s: float = 15.0

    @property
    def ttl_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def renewal_s(self) -> float:
        """Renewal interval, short enough that one renewal may fail."""
        return self.lease_s / 3


async def keep(live: Callable[[], Iterable[Run]], held: HeldRuns, peers: Peers, owner: Owner) -> None:
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    while True:
        next_s = max(next_s + owner.renewal_s, loop.time())
        await asyncio.sleep(next_s - loop.time())
        runs = {run.id: run for run in live() if run.state.is_stored and not run.log.is_lost}
        parked = {run.id: run for run in held.all()}
        if runs or parked:
            for run in await _renew_leases(runs | parked, peers, owner):
                if isinstance(run, Run):
                    if not run.feed.ended:
                        log.warning("run lost", run_id=run.id)
                        run.log.lose()
                        run.control.give_up()
                else:
                    held.let_go(run)


async def release(run: Run, peers: Peers) -> None:
    request = memory_pb2.ReleaseLeaseRequest(run_id=run.id, generation=run.log.generation)
    await peers.memory.ReleaseLease(request, timeout=RELEASE_TIMEOUT_S)


async def park(run_id: str, generation: int, due_at: int, peers: Peers) -> None:
    request = memory_pb2.ReleaseLeaseRequest(run_id=run_id, generation=generation, due_at=due_at)
    await peers.memory.ReleaseLease(request, timeout=RELEASE_TIMEOUT_S)


async def _renew_leases(runs: Mapping[str, Run | HeldRun], peers: Peers, owner: Owner) -> list[Run | HeldRun]:
    """Renew the leases; return the runs that lost theirs."""
    held = [memory_pb2.HeldLease(run_id=run.id, generation=run.generation) for run in runs.values()]
    try:
        with acting_as(None):
            request = memory_pb2.RenewLeasesRequest(leases=held, ttl_ms=owner.ttl_ms)
            response = await peers.memory.RenewLeases(request, timeout=owner.renewal_s)
    except HeadraceError as error:
        log.warning("leases not renewed", runs=len(runs), reason=error.reason)
    except Exception:
        # The supervisor: a failed renewal must not end all runs.
        log.exception("leases not renewed", runs=len(runs))
    else:
        return [runs[run_id] for run_id in response.lost_run_ids]
    return []
