"""Starts the runs of schedules that are due.

All orchestrators look; a time's run has the same request and chat wherever it is started, so that it begins once. What
became of the time is stored after that, and by whoever looks next if this process is killed before.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import ChatBusy, HeadraceError, NotFound, to_failure
from headrace.v1 import agent_pb2, schedule_pb2
from services.orchestrator.lifecycle.start_result import OwnedElsewhere, RepeatedQuery
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_s
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from services.orchestrator.lifecycle.runs import Runs

OLDER_S = 60.0
"""Time between looks at a memory that is older than schedules."""

JITTER = (0.8, 1.0)
"""Replicas that look at the same time would start the same runs."""

STARTS_AT_ONCE = 8

log = structlog.get_logger()


class DueSchedules:
    def __init__(self, runs: Runs, peers: Peers, look_s: float) -> None:
        """Look for new schedules at least every `look_s`."""
        self._runs = runs
        self._peers = peers
        self._look_s = look_s

    async def watch(self) -> None:
        while True:
            wait_s = self._look_s
            try:
                if not self._runs.is_draining:
                    wait_s = await self._start_due()
            except HeadraceError as error:
                log.warning("schedules not looked for", reason=error.reason)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    wait_s = OLDER_S
                log.warning("schedules not looked for", status=error.code().name, problem=error.details())
            except Exception:
                # The supervisor: an error in one look must not end all that follow.
                log.exception("schedules not looked for")
            await asyncio.sleep(wait_s * choose_uniform(*JITTER))

    async def _start_due(self) -> float:
        """Start what is due, and return the seconds until the next look."""
        with acting_as(None), translating_peer_errors():
            found = await self._peers.schedules.ListDueSchedules(
                schedule_pb2.ListDueSchedulesRequest(), timeout=UNARY_TIMEOUT_S
            )
        for first in range(0, len(found.due), STARTS_AT_ONCE):
            some = (self._start_run(due) for due in found.due[first : first + STARTS_AT_ONCE])
            for problem in await asyncio.gather(*some, return_exceptions=True):
                if problem is not None:
                    raise problem
        if not found.next_at:
            return self._look_s
        return min(max(found.next_at / 1000 - now_s(), 0.0) / JITTER[0], self._look_s)

    async def _start_run(self, due: schedule_pb2.DueSchedule) -> None:
        with acting_as(Identity(due.tenant, due.user)):
            firing = await self._make_firing(due)
        if firing is None:
            return
        with acting_as(None):
            try:
                with translating_peer_errors():
                    await self._peers.schedules.RecordFiring(
                        schedule_pb2.RecordFiringRequest(schedule_id=due.schedule.schedule_id, firing=firing),
                        timeout=UNARY_TIMEOUT_S,
                    )
            except NotFound:
                return  # it was deleted meanwhile
        log.info("schedule", schedule_id=due.schedule.schedule_id, outcome=firing.outcome, run_id=firing.run_id)

    async def _make_firing(self, due: schedule_pb2.DueSchedule) -> schedule_pb2.Firing | None:
        """Start the run and return what is to be stored of it; None when it is to be tried again."""
        firing = schedule_pb2.Firing(due_at=due.due_at)
        query = _make_query(due)
        try:
            if not due.schedule.chat_id and await self._is_going_on(due.last_run_id):
                firing.outcome = "queued" if due.schedule.overlap == "queue" else "skipped"
                return firing
            started = await self._runs.start(query)
        except ChatBusy:
            firing.outcome = "skipped"
            return firing
        except HeadraceError as error:
            if error.retriable:
                log.warning("schedule not started", schedule_id=due.schedule.schedule_id, reason=error.reason)
                return None
            firing.outcome = "failed"
            firing.failure.CopyFrom(to_failure(error))
            return firing
        if isinstance(started, OwnedElsewhere):
            return None  # who owns the chat looks too
        firing.outcome, firing.chat_id = "started", query.chat_id
        firing.run_id = started.run_id if isinstance(started, RepeatedQuery) else started.id
        return firing

    async def _is_going_on(self, run_id: str) -> bool:
        if not run_id:
            return False
        if self._runs.live.has(run_id):
            return True
        try:
            return (await stored_runs.get_run(self._peers, run_id)).state in ("queued", "running", "waiting")
        except NotFound:
            return False


def _make_query(due: schedule_pb2.DueSchedule) -> agent_pb2.QueryRequest:
    """Make the query of a due time, which is the same wherever it is made."""
    schedule = due.schedule
    chat_id = schedule.chat_id or str(uuid.uuid5(uuid.UUID(schedule.schedule_id), str(due.due_at)))
    return agent_pb2.QueryRequest(
        request_id=f"{schedule.schedule_id}:{due.due_at}",
        chat_id=chat_id,
        agent_key=schedule.agent_key,
        message=schedule.message,
        when_busy="enqueue" if schedule.overlap == "queue" else "reject",
    )
