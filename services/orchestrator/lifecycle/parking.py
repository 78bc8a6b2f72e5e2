"""Parks runs that wait only for people: this process drops them, and the next replica that needs one takes it over.

Their logs hold all state needed to continue (docs/decisions/0022). First the lease marks the run as parked, then the
run is dropped here. Input from people in between waits, and then triggers the takeover.
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
"""Pause between checks for runs to park: a quarter of `park_after_s`, within these bounds."""

AT_ONCE = 16
"""Maximum runs parked concurrently."""

SOON_MS = 1000
"""A run that must be handled this soon is not parked."""

AGAIN_S, TRIES_MAX = 0.2, 50
"""Retries while memory may be restarting; leases expire in about the same time."""

DRAIN_S = 3.0
"""Maximum time to drain; it fits within the process's stop time."""

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
        """Park the run and drop it; return False if it stays here."""
        if not run.feed.readers:
            return await self._park_lease(run, due_at)
        self._held.hold(run, due_at)
        return True

    async def _park_lease(self, run: Run, due_at: int) -> bool:
        """Park the run in memory; returns the same as `_let_go`."""
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
            # It may be parked without our knowing it; nothing here may continue it until that is clear.
            await asyncio.sleep(AGAIN_S)
        return True  # parked, or its lease expires: the next replica to find it continues it

    async def _park_held(self, held: HeldRun) -> None:
        """Park a run whose readers have left; if another process took it over, its generation has changed and nothing
        happens."""
        async with self._places:
            try:
                with acting_as(held.identity):
                    await leases.park(held.id, held.generation, held.due_at, self._peers)
            except Exception as error:
                # The supervisor again; the next pass retries.
                log.warning("run not parked", run_id=held.id, problem=str(error))
            else:
                self._held.let_go(held)

    async def drain(self) -> None:
        """Park the runs held for readers, who are asked to reconnect."""
        self._park_after_s = -1
        self._held.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S), asyncio.TaskGroup() as group:
                for held in self._held.all():
                    group.create_task(self._park_held(held))


def find_due_at(run: Run, live: LiveRuns) -> int:
    """Return when a run that waits only for people must be handled, in Unix milliseconds; 0 if it cannot be parked."""
    # A cassette covers only one owner's part, and a reader that cancels the run by leaving must be noticed here.
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
