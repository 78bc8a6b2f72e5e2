"""Schedules in a folder, each a file that is written whole, and in memory. Everything but FileSchedules blocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import structlog

from services.memory.storage.files.disk import Disk
from services.memory.storage.schedules import Schedule, decode_schedule, encode_schedule

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom
    from services.runtime.auth.identity import Identity

log = structlog.get_logger()


class ScheduleFolder:
    def __init__(self, folder: Path, room: DiskRoom) -> None:
        self._disk = Disk(folder)
        self._room = room
        self._lock = Lock()
        self._disk.delete_unfinished()
        self._schedules: dict[str, Schedule] = {}
        for schedule_id in self._disk.list_logs():
            try:
                self._schedules[schedule_id] = decode_schedule(self._disk.read_log(schedule_id))
            except (OSError, msgspec.DecodeError) as error:
                log.error("schedule cannot be read", schedule_id=schedule_id, error=str(error))

    def close(self) -> None:
        self._disk.close()

    def list_all(self) -> list[Schedule]:
        return list(self._schedules.values())  # without the lock, which is held while the disk writes

    def find(self, schedule_id: str) -> Schedule | None:
        return self._schedules.get(schedule_id)

    def put(self, schedule: Schedule) -> bool:
        schedule_id = schedule.schedule_id
        with self._lock:
            before = self._schedules.get(schedule_id)
            if schedule.version != (before.version if before else 0) + 1:
                return False
            with self._room.writing(schedule_id):
                self._disk.rewrite_log(schedule_id, encode_schedule(schedule))
            self._schedules[schedule_id] = schedule
            return True

    def delete(self, schedule_id: str) -> None:
        with self._lock, self._room.writing(schedule_id):
            self._disk.delete_log(schedule_id)
            self._schedules.pop(schedule_id, None)


class FileSchedules:
    def __init__(self, folder: ScheduleFolder) -> None:
        self._folder = folder

    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        own = (schedule for schedule in self._folder.list_all() if schedule.owner == owner and _place(schedule) > after)
        return sorted(own, key=_place)[:count]

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

    async def put(self, schedule: Schedule) -> bool:
        return await asyncio.to_thread(self._folder.put, schedule)

    async def delete(self, schedule_id: str) -> None:
        await asyncio.to_thread(self._folder.delete, schedule_id)


def _place(schedule: Schedule) -> tuple[int, str]:
    return schedule.created_at, schedule.schedule_id
