"""Limits each tenant's runs, and admits waiting queries fairly.

A chat uses one place while it has a live run; its waiting queries use none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from headrace.errors import HeadraceError, QueueFull
from services.orchestrator import metrics
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S, decrement_count, get_turnstile

BEGINNING_MAX = 4
"""Maximum runs starting at a time. More would not start faster, and the next run would wait for all of them. Beyond it,
each tenant may start one."""

WAIT_S = 30.0
"""How long a query may wait for its turn; people do not watch a silent page longer."""


class FairUse:
    def __init__(self, places_max: int, waiting_max: int, *, wait_s: float = WAIT_S) -> None:
        self._places_max = places_max
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._taken: Counter[str] = Counter()
        self._beginning: Counter[str] = Counter()
        """Admitted runs that may not have a place yet."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting queries by tenant; the next tenant comes first."""

    @property
    def waiting_max(self) -> int:
        return self._waiting_max

    def count_places(self, tenant: str) -> int:
        """Return the tenant's number of places, including those of runs that are starting."""
        return self._taken[tenant] + self._beginning[tenant]

    def count_waiting(self, tenant: str) -> int:
        return len(self._waiting.get(tenant, ()))

    def take(self, tenant: str) -> None:
        """Take a place even if none is free, because the run has been accepted."""
        self._taken[tenant] += 1

    def give_back(self, tenant: str) -> None:
        decrement_count(self._taken, tenant)
        self._admit_waiting()

    def end_turn(self, tenant: str) -> None:
        """Let the next query begin: the run of this turn has started, or failed to."""
        decrement_count(self._beginning, tenant)
        self._admit_waiting()

    def close(self, error: HeadraceError) -> None:
        for queue in self._waiting.values():
            for waiting in queue:
                if not waiting.done():
                    waiting.set_exception(error)
        self._waiting.clear()

    async def wait_for_turn(self, tenant: str) -> None:
        """Return when it is the tenant's turn; the caller begins a run and then ends the turn.

        Raises:
            QueueFull: Too many queries are waiting, or the turn did not come in time.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(place)
        self._admit_waiting()
        if not place.done() and self.count_waiting(tenant) > self._waiting_max:
            self._leave_queue(tenant, place)
            raise self._make_refusal(f"{self._waiting_max} runs of the tenant wait already")
        try:
            with metrics.QUEUE_LENGTH.labels(identity.label_tenant(tenant)).track_inprogress():
                async with asyncio.timeout(self._wait_s):
                    await place
        except TimeoutError:
            self._leave_queue(tenant, place)
            # Those who came together are refused together, which is work too.
            await get_turnstile().pass_through(tenant)
            raise self._make_refusal(f"no place for the run within {self._wait_s:g} s") from None
        except BaseException:
            self._leave_queue(tenant, place)
            raise

    def _leave_queue(self, tenant: str, place: asyncio.Future[None]) -> None:
        """Leave the queue, or return a place that was assigned just before."""
        if place.done() and not place.cancelled() and place.exception() is None:
            decrement_count(self._beginning, tenant)
            self._admit_waiting()
        elif (queue := self._waiting.get(tenant)) and place in queue:
            queue.remove(place)
            if not queue:
                del self._waiting[tenant]

    def _admit_waiting(self) -> None:
        while (tenant := self._next_tenant()) is not None:
            queue = self._waiting.pop(tenant)
            place = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # at the end of the queue
            if not place.done():
                self._beginning[tenant] += 1
                place.set_result(None)

    def _next_tenant(self) -> str | None:
        # A tenant that is starting none may start one, because other tenants' starts may be slow, for example on a
        # router's model.
        is_full = self._beginning.total() >= BEGINNING_MAX
        for tenant in self._waiting:
            beginning = self._beginning[tenant]
            if not (is_full and beginning) and self._taken[tenant] + beginning < self._places_max:
                return tenant
        return None

    def _make_refusal(self, why: str) -> QueueFull:
        return QueueFull(f"{why}; try again later", retry_after_s=RETRY_AFTER_S)


class NoLimits(FairUse):
    """Applies no limit other than the process's capacity."""

    def __init__(self) -> None:
        super().__init__(0, 0)

    async def wait_for_turn(self, tenant: str) -> None:
        """Return at once."""

    def end_turn(self, tenant: str) -> None:
        """Do nothing."""
