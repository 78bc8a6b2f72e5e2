"""Parks runs that wait for people alone: this process lets go of them, and whoever needs one takes it over.

Their logs have all that is needed to go on (docs/decisions/0022). First the lease says that the run is parked, then the
run is dropped here; what people tell it meanwhile waits, and takes it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from headrace.errors import HeadraceError
from services.orchestrator import metrics
from services.orchestrator.lifecycle import leases
from services.orchestrator.lifecycle.live_runs import HeldRun, HeldRuns, LiveRuns
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import acting_as
from services.runtime.clock import now_ms

LOOK_S, LOOK_S_MIN = 1.0, 0.02
"""Pause between looks for runs to park: a fourth of the time for which they must have waited, within these."""

AT_ONCE = 16
"""Runs that are parked at the same time."""

SOON_MS = 1000
"""A run that somebody must look after so soon is not parked."""

AGAIN_S, TRIES_MAX = 0.2, 50
"""Memory may be restarting; a lease ends in about as long."""

DRAIN_S = 3.0
"""This fits within the time in which the process stops."""

log = structlog.get_logger()


class Parking:
    def __init__(
        self, live: LiveRuns, held: HeldRuns, peers: Peers, park_after_s: float, may_park: Callable[[Run], bool]
    ) -> None:
        """Park runs that have waited for `park_after_s`; below 0: none."""
        self._live = live
        self._held = held
        self._peers = peers
        self._park_after_s = park_after_s
        self._may_park = may_park
        self._places = asyncio.Semaphore(AT_ONCE)

    async def watch(self) -> None:
        while self._park_after_s >= 0:
            if not self._held.all():
                await self._live.wait_until_busy()  # an idle process wakes for nothing
            await asyncio.sleep(min(LOOK_S, max(LOOK_S_MIN, self._park_after_s / 4)))
            try:
                await self._park_all()
            except Exception:
                # The supervisor: an error in one look must not end all that follow.
                log.exception("runs not parked")

    async def _park_all(self) -> None:
        before = now_ms() - self._park_after_s * 1000
        async with asyncio.TaskGroup() as group:
            for run in self._live.all():
                if run.log.updated_at <= before and self._may_park(run) and find_due_at(run, self._live):
                    group.create_task(self._park(run))
            for held in self._held.all():
                if not held.readers and held.held_at <= before - SOON_MS:
                    group.create_task(self._park_held(held))

    async def _park(self, run: Run) -> None:
        async with self._places:
            # Once more: it may have been answered while this waited for its place.
            if not (due_at := find_due_at(run, self._live)):
                return
            self._live.begin_leaving(run)
            is_parked = False
            try:
                is_parked = await self._let_go(run, due_at)
            finally:
                if not is_parked:
                    self._live.end_leaving(run.id)
            if not is_parked:
                return
            metrics.PARKED.inc()
            log.info("run parked", run_id=run.id, due_at=due_at, readers=run.feed.readers)
            run.park()

    async def _let_go(self, run: Run, due_at: int) -> bool:
        """Return False where the run stays here."""
        if not run.feed.readers:
            return await self._park_lease(run, due_at)
        self._held.hold(run, due_at)
        return True

    async def _park_lease(self, run: Run, due_at: int) -> bool:
        """Park the run in memory; return as `_let_go`."""
        for _ in range(TRIES_MAX):
            if run.control.must_end or run.log.is_lost:
                return False
            try:
                with acting_as(run.identity):
                    await leases.park(run.id, run.log.generation, due_at, self._peers)
            except HeadraceError as error:
                log.warning("run not parked", run_id=run.id, reason=error.reason)
                if not error.retriable:
                    return False
            except Exception:
                # The supervisor of a parking: an error in one must not end the others.
                log.exception("run not parked", run_id=run.id)
            else:
                return True
            # It may be parked and is not known to be: nobody here may go on with it before that is known.
            await asyncio.sleep(AGAIN_S)
        return True  # parked, or with a lease that ends: whoever comes to it goes on with it

    async def _park_held(self, held: HeldRun) -> None:
        """Park a run whose readers have left; one that somebody has taken over meanwhile has another generation."""
        async with self._places:
            try:
                with acting_as(held.identity):
                    await leases.park(held.id, held.generation, held.due_at, self._peers)
            except Exception as error:
                # The supervisor again; the next look tries it once more.
                log.warning("run not parked", run_id=held.id, problem=str(error))
            else:
                self._held.let_go(held)

    async def drain(self) -> None:
        """Let go of the runs that are held for readers, who are told to come again."""
        self._park_after_s = -1
        self._held.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S), asyncio.TaskGroup() as group:
                for held in self._held.all():
                    group.create_task(self._park_held(held))


def find_due_at(run: Run, live: LiveRuns) -> int:
    """Return when somebody must look after a run that waits for people alone, in Unix milliseconds; 0 for any other."""
    # A cassette has one owner's part alone, and a reader whose leaving cancels the run is to be noticed here.
    if run.recorder is not None or run.query.on_disconnect == "cancel" or live.is_leaving(run.id):
        return 0
    if run.credentials.has_any:  # they are in this process alone, and would be asked for again
        return 0
    if not run.is_settled or len(live.list_chat(run)) > 1:
        return 0
    gates = run.gates.list_waiting()
    if len(gates) != run.spending.clock.waits or any(gate.answering.locked() for gate in gates):
        return 0
    due_at = min((gate.next_time for gate in gates), default=0)
    return due_at if due_at > now_ms() + SOON_MS else 0
