"""Schedules that the console shows."""

from typing import Any

from services.memory.schedules.store import ScheduleStore
from services.memory.storage.records.schedules import Failure, Firing, Schedule
from tests.support.facade.records import make_schedule_store
from tests.support.facade.scripted import CHAT, RUN

DUE = 1_790_000_000_000


async def make_schedules() -> ScheduleStore:
    """Make a schedule that has started one run and failed to start another, and one that waits for its only time."""
    store = make_schedule_store()
    record_fields: dict[str, Any] = {
        "schedule_id": "",
        "tenant": "",
        "user": "",
        "version": 0,
        "created_at": 0,
        "updated_at": 0,
    }
    agent_fields: dict[str, Any] = {"agent_key": "helper", "overlap": "skip"}
    times: dict[str, Any] = {"cron": "30 9 * * 1-5", "time_zone": "Europe/Berlin"}
    name = "Morning <b>news</b>"
    failure = Failure(code="NOT_FOUND", message="no agent has the key 'helper'")
    firings = (
        Firing(due_at=DUE + 60_000, recorded_at=DUE, outcome="started", run_id=RUN, chat_id=CHAT),
        Firing(due_at=DUE, recorded_at=DUE, outcome="failed", failure=failure),
    )
    first = record_fields | {
        "schedule_id": "11111111-1111-4111-8111-111111111111"
    }  # they may be made in one millisecond
    record_fields["schedule_id"] = "22222222-2222-4222-8222-222222222222"
    await store.create(Schedule(name=name, message="What is new?", firings=firings, **times, **first, **agent_fields))
    await store.create(
        Schedule(name="Once", message="Now.", once_at=4_000_000_000_000, **record_fields, **agent_fields)
    )
    return store
