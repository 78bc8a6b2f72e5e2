"""Leases of a folder's unfinished runs, in memory and in the index file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from services.memory.storage.leases import NO_LEASE, Lease

if TYPE_CHECKING:
    from services.memory.storage.files.indexing.index import Index


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
        """Make `owner` the owner of a run with lines up to generation `written`; see Leases.acquire."""
        lease = self._held.get(run_id, NO_LEASE)
        lease.check_free(run_id, owner, self._clock())
        before = max(lease.generation, written, self._floor)
        acquired = Lease.start_at(owner, before + 1, self._clock(), ttl_ms)
        await self._store_leases({run_id: acquired})
        return acquired

    async def renew(self, held: Mapping[str, int], ttl_ms: int) -> tuple[int, list[str]]:
        """See Leases.renew."""
        expires_at = Lease.start_at("", 0, self._clock(), ttl_ms).expires_at
        renewed: dict[str, Lease] = {}
        for run_id, generation in held.items():
            lease = self._held.get(run_id)
            if lease is not None and lease.generation == generation and lease.owner and lease.expires_at:
                renewed[run_id] = replace(lease, expires_at=expires_at)
        if renewed:
            await self._store_leases(renewed)
        return expires_at, [run_id for run_id in held if run_id not in renewed]

    async def release(self, run_id: str, generation: int, due_at: int = 0) -> None:
        lease = self._held.get(run_id)
        if lease and lease.generation == generation and lease.owner and lease.expires_at:
            await self._store_leases({run_id: lease.release(due_at)})

    def drop_runs(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._held.pop(run_id, None)

    async def _store_leases(self, leases: Mapping[str, Lease]) -> None:
        # In memory first, so that concurrent requests are checked against it.
        before = {run_id: self._held.get(run_id) for run_id in leases}
        self._held.update(leases)
        try:
            await self._index.change_file(lambda database: database.put_leases(leases))
        except BaseException:
            for run_id, lease in before.items():
                if lease is None:
                    self._held.pop(run_id, None)
                elif self._held.get(run_id) is leases[run_id]:
                    self._held[run_id] = lease
            raise
