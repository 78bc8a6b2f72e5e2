"""Who runs a run: leases that end by the clock, and generations that fence whoever had one before.

In memory for every append to be held against, and in the index's file for the next start. A lease that has ended is
still in force as a fence: only its run may be had by another then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headrace.errors import InvalidRequest, NotFound, StaleLease
from services.memory.facts import RunFacts
from services.memory.index import Index

TTL_MS_MAX = 10 * 60 * 1000
"""A lease that holds longer says nothing about whether its owner is alive."""


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Lease:
    """The last owner of a run."""

    owner: str
    generation: int
    expires_at: int
    """Unix milliseconds; 0: given up, or never had."""

    @classmethod
    def until(cls, owner: str, generation: int, now: int, ttl_ms: int) -> Lease:
        """A lease from now on. Raises InvalidRequest: the time is out of bounds."""
        if not 0 < ttl_ms <= TTL_MS_MAX:
            raise InvalidRequest.of("ttlMs", f"must be 1 to {TTL_MS_MAX}")
        return cls(owner, generation, now + ttl_ms)

    def check_free(self, run_id: str, owner: str, now: int) -> None:
        """Raise StaleLease where this lease keeps `owner` from having the run."""
        if self.owner != owner and self.expires_at > now:
            raise StaleLease(f"run {run_id} has an owner; its lease holds", runId=run_id, expiresAt=self.expires_at)


NO_LEASE = Lease("", 0, 0)
"""Of a run that nobody ever owned."""


def lost(run_id: str, generation: int) -> StaleLease:
    """The error for a lease that is another's now."""
    return StaleLease(f"the lease of run {run_id} with generation {generation} was lost", runId=run_id)


def check_owned(run: RunFacts | None, chat_id: str, run_id: str) -> RunFacts:
    """The run, which can have an owner. Raises NotFound: there is none; StaleLease: it has ended."""
    if run is None:
        raise NotFound(f"run {run_id} does not exist in chat {chat_id}", runId=run_id)
    if run.is_ended:
        raise StaleLease(f"run {run_id} has ended; nobody can own it", runId=run_id)
    return run


class Leases:
    """The leases of runs that have not ended. Touched on the event loop only."""

    def __init__(self, index: Index, held: dict[str, Lease], floor: int, clock: Callable[[], int] = now_ms) -> None:
        """`held` is what the index has kept; `floor` is no generation that may be given."""
        self._index = index
        self._held = held
        self._floor = floor
        self._clock = clock

    def now(self) -> int:
        """Unix milliseconds, by which leases end."""
        return self._clock()

    def generation(self, run_id: str) -> int:
        """Of the run's lease; 0: it never had one."""
        lease = self._held.get(run_id)
        return lease.generation if lease else 0

    def first_of(self, owner: str, ttl_ms: int) -> Lease:
        """The lease of a run that `owner` is about to begin. Raises InvalidRequest: the time is out of bounds."""
        return Lease.until(owner, 0, self._clock(), ttl_ms)

    def begin(self, run_id: str, lease: Lease) -> None:
        """Take in the first lease of a run; the index gets it with the run itself."""
        self._held[run_id] = lease

    def first(self, run_id: str) -> Lease | None:
        """The lease that the run began with, while nobody has taken the run over."""
        lease = self._held.get(run_id)
        return lease if lease and not lease.generation else None

    async def acquire(self, run_id: str, written: int, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the owner of a run whose lines have generation `written` at most.

        Raises:
            StaleLease: Another owner's lease holds.
            InvalidRequest: The time is out of bounds.
        """
        lease = self._held.get(run_id, NO_LEASE)
        lease.check_free(run_id, owner, self._clock())
        before = max(lease.generation, written, self._floor)
        return await self._keep(run_id, Lease.until(owner, before + 1, self._clock(), ttl_ms))

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        """Prolong a lease, from now on.

        Raises:
            StaleLease: It was lost.
            InvalidRequest: The time is out of bounds.
        """
        lease = self._held.get(run_id)
        if lease is None or lease.generation != generation or not lease.expires_at:
            raise lost(run_id, generation)
        return await self._keep(run_id, Lease.until(lease.owner, generation, self._clock(), ttl_ms))

    async def release(self, run_id: str, generation: int) -> None:
        """Give a lease up, if it still is one; who had it stays known."""
        lease = self._held.get(run_id)
        if lease and lease.generation == generation and lease.expires_at:
            await self._keep(run_id, replace(lease, expires_at=0))

    def forget(self, run_ids: Iterable[str]) -> None:
        """Runs that have ended: their logs fence everybody."""
        for run_id in run_ids:
            self._held.pop(run_id, None)

    async def _keep(self, run_id: str, lease: Lease) -> Lease:
        # First in memory: whoever asks meanwhile is held against it.
        before = self._held.get(run_id)
        self._held[run_id] = lease
        try:
            await self._index.ask(
                lambda database: database.put_lease(run_id, lease.owner, lease.generation, lease.expires_at)
            )
        except BaseException:
            if before is None:
                self._held.pop(run_id, None)
            elif self._held.get(run_id) is lease:
                self._held[run_id] = before
            raise
        return lease
