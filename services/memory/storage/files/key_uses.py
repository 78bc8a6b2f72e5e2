"""Usage of API keys' limits, in memory, because only this process serves the folder. A restart resets the counts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from services.memory.storage.key_uses import RESERVED_MS, CallUse, take_from_bucket
from services.memory.storage.paging import PAGE_MAX, read_pages
from services.memory.storage.run_query import RunQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.files.indexing.index import Index


BUCKETS_MAX = 10_000
"""Maximum buckets before full ones are dropped."""


class FileKeyUses:
    def __init__(self, index: Index, clock: Callable[[], int]) -> None:
        self._index = index
        self._clock = clock
        self._full_at_us: dict[str, int] = {}
        self._reserved: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """By credential and run: when the reservation expires."""
        self._lock = asyncio.Lock()

    async def take_calls(self, key_id: str, per_minute: int, wanted: int) -> CallUse:
        now = self._clock()
        if len(self._full_at_us) >= BUCKETS_MAX:
            self._full_at_us = {other: at for other, at in self._full_at_us.items() if at > now * 1000}
        use = take_from_bucket(self._full_at_us.get(key_id, 0), per_minute, wanted, now)
        self._full_at_us[key_id] = use.full_at_us
        return use

    async def reserve_run(self, tenant: str, credential: str, run_id: str, runs_max: int) -> bool:
        async with self._lock:
            now, reserved = self._clock(), self._reserved[credential]
            stored = set[str]()
            if reserved:
                # With uses since then, which the index has by now.
                query = RunQuery(tenant, len(reserved), run_ids=[*reserved])
                stored = {run.run_id async for run in read_pages(self._index.list_runs, query)}
            for other, until in list(reserved.items()):
                if until <= now or other in stored:
                    del reserved[other]
            query = RunQuery(tenant, PAGE_MAX, state="live", credential=credential)
            taken = {run.run_id async for run in read_pages(self._index.list_runs, query)} | reserved.keys()
            if len(taken - {run_id}) >= runs_max:
                return False
            reserved[run_id] = now + RESERVED_MS
            return True

    async def release_run(self, credential: str, run_id: str) -> None:
        self._reserved[credential].pop(run_id, None)
        if not self._reserved[credential]:
            del self._reserved[credential]
