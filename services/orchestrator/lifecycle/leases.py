"""Renews the leases of live runs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from headrace.errors import HeadraceError, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import Peers, translating_peer_errors
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import acting_as

RENEWALS_MAX = 32

RELEASE_TIMEOUT_S = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Owner:
    address: str
    """A process that starts with the same address takes over the earlier one's runs."""
    lease_s: float = 15.0

    @property
    def ttl_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def renewal_s(self) -> float:
        """Interval so short that one renewal may fail."""
        return self.lease_s / 3


async def keep(live: Callable[[], Iterable[Run]], peers: Peers, owner: Owner) -> None:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(RENEWALS_MAX)
    next_s = loop.time()
    while True:
        next_s = max(next_s + owner.renewal_s, loop.time())
        await asyncio.sleep(next_s - loop.time())
        async with asyncio.TaskGroup() as group:
            for run in live():
                if run.state.is_stored and not run.log.is_lost:
                    group.create_task(_renew_lease(run, peers, gate, owner))


async def release(run: Run, peers: Peers) -> None:
    request = memory_pb2.ReleaseLeaseRequest(run_id=run.id, generation=run.log.generation)
    with translating_peer_errors():
        await peers.memory.ReleaseLease(request, timeout=RELEASE_TIMEOUT_S)


async def _renew_lease(run: Run, peers: Peers, gate: asyncio.Semaphore, owner: Owner) -> None:
    try:
        async with gate:
            request = memory_pb2.RenewLeaseRequest(run_id=run.id, generation=run.log.generation, ttl_ms=owner.ttl_ms)
            with acting_as(run.identity), translating_peer_errors():
                await peers.memory.RenewLease(request, timeout=owner.renewal_s)
    except StaleLease:
        if not run.feed.ended:
            log.warning("run lost", run_id=run.id)
            run.log.lose()
            run.control.give_up()
    except HeadraceError as error:
        log.warning("lease not renewed", run_id=run.id, reason=error.reason)
    except Exception:
        # The supervisor: one run's renewal must not end all others.
        log.exception("lease not renewed", run_id=run.id)
