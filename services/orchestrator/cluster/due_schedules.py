"""Starts the runs of schedules that are due.

All orchestrators look; a time's run has the same request and chat wherever it is started, so that it begins once. What
became of the time is stored after that, and by whoever looks next if this process is killed before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.errors import ChatBusy, HeadraceError, to_failure
from headrace.v1 import schedule_pb2
from services.orchestrator.cluster.due_query import make_query
from services.orchestrator.cluster.firings import log_errors, record_firing
from services.orchestrator.lifecycle.start_result import OwnedElsewhere, RepeatedQuery
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_s
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from services.orchestrator.cluster.takeover import Takeover
    from services.orchestrator.lifecycle.runs import Runs

JITTER = (0.8, 1.0)
"""Replicas that look at the same time would start the same runs."""

STARTS_MAX = 1000
"""Runs that may be starting at a time; those of a tenant that has many may have to wait for their turn."""

AGAIN_S = 0.2
"""Time to the next look where more is due than one answer holds."""


class DueSchedules:
    def __init__(self, runs: Runs, takeover: Takeover, peers: Peers, look_s: float) -> None:
        """Look for new schedules at least every `look_s`."""
        self._runs = runs
        self._takeover = takeover
        self._peers = peers
        self._look_s = look_s
        self._starting: set[tuple[str, int]] = set()
        """Due times that are being started, by schedule and time."""

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                wait_s = self._look_s
                with log_errors():
                    if not self._runs.is_draining:
                        wait_s = await self._start_due(group)
                await asyncio.sleep(wait_s * choose_uniform(*JITTER))

    async def _start_due(self, group: asyncio.TaskGroup) -> float:
        """Begin to start what is due, and return the seconds until the next look."""
        with acting_as(None):
            found = await self._peers.schedules.ListDueSchedules(schedule_pb2.ListDueSchedulesRequest())
        begun = 0
        for due in found.due:
            key = due.schedule.schedule_id, due.due_at
            if key not in self._starting and len(self._starting) < STARTS_MAX:
                self._starting.add(key)
                task = group.create_task(self._start_and_record(due))
                task.add_done_callback(lambda _, key=key: self._starting.discard(key))
                begun += 1
        if not found.next_at or (found.due and not begun):
            return self._look_s
        return min(max(found.next_at / 1000 - now_s(), AGAIN_S) / JITTER[0], self._look_s)

    async def _start_and_record(self, due: schedule_pb2.DueSchedule) -> None:
        with log_errors(due.schedule.schedule_id):
            with acting_as(Identity(due.tenant, due.user, makers=frozenset(due.makers))):
                firing = await self._make_firing(due)
            if firing is not None:
                await record_firing(self._peers, due.schedule.schedule_id, firing)

    async def _make_firing(self, due: schedule_pb2.DueSchedule) -> schedule_pb2.Firing | None:
        """Start the run and return what is to be stored of it; None when another replica has to."""
        firing = schedule_pb2.Firing(due_at=due.due_at)
        query = make_query(due)
        try:
            may_overlap = due.schedule.chat_id and due.schedule.overlap != "queue"  # the chat itself is busy then
            if not may_overlap and await self._is_going_on(due.last_run_id):
                firing.outcome = "queued" if due.schedule.overlap == "queue" else "skipped"
                return firing
            started = await self._runs.start(query)
            if isinstance(started, OwnedElsewhere) and not isinstance(await self._takeover.find(started.run_id), str):
                started = await self._runs.start(query)  # it was parked, and is here now
        except ChatBusy:
            firing.outcome = "skipped"
            return firing
        except HeadraceError as error:
            firing.outcome = "refused" if error.retriable else "failed"
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
        # A damaged chat has none: nothing goes on in it.
        unfinished = await stored_runs.list_unfinished_of_chat(self._peers, run_id)
        return any(run.run_id == run_id for run in unfinished)
