"""Leases of a folder's unfinished runs, in memory and in the index file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from services.memory.storage.leases import NO_LEASE, Lease, lease_lost

if TYPE_CHECKING:
    from services.memory.storage.files.index import Index


class LeaseTable:
    def __init__(self, index: Index, held: dict[str, Lease], floor: int, clock: Callable[[], int]) -> None:
        """`held` are the leases in the index; new generations are above `floor`."""
        self._index = index
        self._held = held
        self._floor = floor
        self._clock = clock

    def get_generation(self, run_id: str) -> int:
        """Return the generation of the run's lease; 0 if it never had one."""
        lease = self._held.get(run_id)
        return lease.generation if lease else 0

    def create_first(self, owner: str, ttl_ms: int) -> Lease:
        return Lease.start_at(owner, 0, self._clock(), ttl_ms)

    def add_first(self, run_id: str, lease: Lease) -> None:
        """Add the first lease of a run; the index gets it with the run itself."""
        self._held[run_id] = lease

    def find_first(self, run_id: str) -> Lease | None:
        lease = self._held.get(run_id)
        return lease if lease and not lease.generation else None

    async def acquire(self, run_id: str, written: int, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the owner of a run whose lines have generation `written` at most; see Leases.acquire."""
        lease = self._held.get(run_id, NO_LEASE)
        lease.check_free(run_id, owner, self._clock())
        before = max(lease.generation, written, self._floor)
        return await self._store_lease(run_id, Lease.start_at(owner, before + 1, self._clock(), ttl_ms))

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        lease = self._held.get(run_id)
        if lease is None or lease.generation != generation or not lease.expires_at:
            raise lease_lost(run_id, generation)
        return await self._store_lease(run_id, Lease.start_at(lease.owner, generation, self._clock(), ttl_ms))

    async def release(self, run_id: str, generation: int) -> None:
        lease = self._held.get(run_id)
        if lease and lease.generation == generation and lease.expires_at:
            await self._store_lease(run_id, replace(lease, expires_at=0))

    def drop_runs(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._held.pop(run_id, None)

    async def _store_lease(self, run_id: str, lease: Lease) -> Lease:
        # First in memory: whoever asks meanwhile is held against it.
        before = self._held.get(run_id)
        self._held[run_id] = lease
        try:
            await self._index.change_file(
                lambda database: database.put_lease(run_id, lease.owner, lease.generation, lease.expires_at)
            )
        except BaseException:
            if before is None:
                self._held.pop(run_id, None)
            elif self._held.get(run_id) is lease:
                self._held[run_id] = before
            raise
        return lease
