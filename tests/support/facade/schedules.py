"""Schedules of a scripted memory: the real RPCs and rules over a dict."""

from __future__ import annotations

from typing import Any

from services.memory.schedules.store import ScheduleStore
from services.memory.storage.records.schedules import Schedule
from services.runtime.auth.identity import Identity


class ListedSchedules:
    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}

    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        own = ((row.created_at, row.schedule_id, row) for row in self._schedules.values())
        return [row for *place, row in sorted(own) if (*place,) > after][:count]

    async def list_own_ids(self, owner: Identity) -> list[str]:
        return [*self._schedules]

    async def list_all(self) -> list[Schedule]:
        return [*self._schedules.values()]

    async def find(self, schedule_id: str) -> Schedule | None:
        return self._schedules.get(schedule_id)

    async def count_own(self, owner: Identity) -> int:
        return len(self._schedules)

    async def list_due(self, now: int, count: int) -> list[Schedule]:
        return []

    async def find_next_start(self, now: int) -> int:
        return 0

    async def put(self, schedule: Schedule, before: int = 0) -> bool:
        self._schedules[schedule.schedule_id] = schedule
        return True

    async def delete(self, schedule_id: str) -> None:
        self._schedules.pop(schedule_id, None)


def make_schedule_store() -> ScheduleStore:
    no_chats: Any = None  # schedules without a chat ask for none
    return ScheduleStore(ListedSchedules(), no_chats)
