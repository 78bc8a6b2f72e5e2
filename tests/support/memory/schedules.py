"""Schedules, made and read through their service."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from headrace.streams import rpc_errors
from headrace.v1 import schedule_pb2
from services.runtime.auth.identity import Identity, acting_as
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
    asked: dict[str, Any] = {"agent_key": "guide", "message": "what is new?"} | fields
    with rpc_errors():
        return (await memory.schedules.CreateSchedule(schedule_pb2.CreateScheduleRequest(**asked))).schedule


async def get(memory: Memory, schedule_id: str) -> schedule_pb2.Schedule:
    with rpc_errors():
        request = schedule_pb2.GetScheduleRequest(schedule_id=schedule_id)
        return (await memory.schedules.GetSchedule(request)).schedule


async def update(memory: Memory, schedule_id: str, **fields: Any) -> schedule_pb2.Schedule:
    with rpc_errors():
        request = schedule_pb2.UpdateScheduleRequest(schedule_id=schedule_id, **fields)
        return (await memory.schedules.UpdateSchedule(request)).schedule


async def list_due(memory: Memory) -> schedule_pb2.ListDueSchedulesResponse:
    with acting_as(None), rpc_errors():
        return await memory.schedules.ListDueSchedules(schedule_pb2.ListDueSchedulesRequest())


async def record(memory: Memory, due: schedule_pb2.DueSchedule, outcome: str = "started", **fields: Any) -> None:
    firing = schedule_pb2.Firing(due_at=due.due_at, outcome=outcome, **fields)
    request = schedule_pb2.RecordFiringRequest(schedule_id=due.schedule.schedule_id, firing=firing)
    with acting_as(None), rpc_errors():
        await memory.schedules.RecordFiring(request)
