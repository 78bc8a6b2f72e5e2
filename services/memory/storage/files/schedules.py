"""Schedules in a folder."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.files.records import RecordFolder, RecordKind
from services.memory.storage.records.schedules import SCHEDULE, Schedule, decode_schedule, encode_schedule

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.runtime.auth.identity import Identity

SCHEDULES = RecordKind[Schedule](
    SCHEDULE,
    lambda schedule: schedule.schedule_id,
    encode_schedule,
    decode_schedule,
    lambda schedule: schedule.owner.tenant,
)


class FileSchedules:
    def __init__(self, folder: RecordFolder[Schedule], keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._keys = keys

    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        await self._keys.open_tenant(owner.tenant)
        own = (schedule for schedule in self._folder.list_all() if schedule.owner == owner and _place(schedule) > after)
        return sorted(own, key=_place)[:count]

    async def list_own_ids(self, owner: Identity) -> list[str]:
        return [schedule.schedule_id for schedule in self._folder.list_all() if schedule.owner == owner]

    async def list_all(self) -> list[Schedule]:
        return sorted(self._folder.list_all(), key=_place)

    async def find(self, schedule_id: str) -> Schedule | None:
        return self._folder.find(schedule_id)

    async def count_own(self, owner: Identity) -> int:
        return sum(schedule.owner == owner for schedule in self._folder.list_all())

    async def list_due(self, now: int, count: int) -> list[Schedule]:
        due = [schedule for schedule in self._folder.list_all() if 0 < schedule.starts_at <= now]
        due.sort(key=lambda schedule: (schedule.starts_at, schedule.schedule_id))
        places: Counter[Identity] = Counter()
        ranked: list[tuple[int, int, Schedule]] = []
        for at, schedule in enumerate(due):
            ranked.append((places[schedule.owner], at, schedule))
            places[schedule.owner] += 1
        return [schedule for _, _, schedule in sorted(ranked, key=lambda row: row[:2])[:count]]

    async def find_next_start(self, now: int) -> int:
        starts = (schedule.starts_at for schedule in self._folder.list_all())
        return min((start for start in starts if start > now), default=0)

    async def put(self, schedule: Schedule, before: int = 0) -> bool:
        await self._keys.prepare(schedule.owner.tenant)
        return await asyncio.to_thread(self._folder.put, schedule, before)

    async def delete(self, schedule_id: str) -> None:
        await asyncio.to_thread(self._folder.delete, schedule_id)


def _place(schedule: Schedule) -> tuple[int, str]:
    return schedule.created_at, schedule.schedule_id
