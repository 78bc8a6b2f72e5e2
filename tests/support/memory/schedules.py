"""Schedules, created and read through their service."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from headrace.v1 import schedule_pb2
from services.runtime.auth.identity import Identity
from tests.support.memory.writing import Memory

ADA, BOB, EVE = Identity("acme", "ada"), Identity("acme", "bob"), Identity("globex", "eve")


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


START = int(datetime(2026, 3, 27, 12, 0, 30, tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
"""A Friday, two days before clocks go forward in Europe."""


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def pass_to(self, time_ms: int) -> None:
        self.now = time_ms


async def create(memory: Memory, **fields: Any) -> schedule_pb2.Schedule:
    request: dict[str, Any] = {"agent_key": "guide", "message": "what is new?"} | fields
    return (await memory.call("CreateSchedule", **request)).schedule


async def get(memory: Memory, schedule_id: str) -> schedule_pb2.Schedule:
    return (await memory.call("GetSchedule", schedule_id=schedule_id)).schedule


async def update(memory: Memory, schedule_id: str, **fields: Any) -> schedule_pb2.Schedule:
    return (await memory.call("UpdateSchedule", schedule_id=schedule_id, **fields)).schedule


async def list_due(memory: Memory) -> schedule_pb2.ListDueSchedulesResponse:
    return await memory.call_as(None, "ListDueSchedules")


async def take_due(memory: Memory, clock: Clock, at_ms: int) -> schedule_pb2.DueSchedule:
    """Advance the clock, and return the only schedule that is due."""
    clock.pass_to(at_ms)
    (due,) = (await list_due(memory)).due
    return due


async def record(memory: Memory, due: schedule_pb2.DueSchedule, outcome: str = "started", **fields: Any) -> None:
    firing = schedule_pb2.Firing(due_at=due.due_at, outcome=outcome, **fields)
    await memory.call_as(None, "RecordFiring", schedule_id=due.schedule.schedule_id, firing=firing)
