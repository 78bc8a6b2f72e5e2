"""Schedules: times, zones, what is due, firings, changes and ownership, on both engines."""

import asyncio
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from headrace.v1 import common_pb2, schedule_pb2
from services.memory.schedules import store
from services.memory.storage.records.schedules import FIRINGS_MAX
from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Serve
from tests.support.memory.schedules import (
    ADA,
    BOB,
    DAY,
    EVE,
    HOUR,
    MINUTE,
    START,
    Clock,
    create,
    get,
    list_due,
    record,
    take_due,
    update,
)
from tests.support.memory.writing import Memory, new_id

pytestmark = pytest.mark.engines


def at(day: int, hour: int, minute: int = 0, *, zone: str = "UTC", month: int = 3, fold: int = 0) -> int:
    return int(datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


async def next_times(memory: Memory, clock: Clock, count: int, **fields: Any) -> list[int]:
    """Return the schedule's first times, each started when it is due."""
    schedule = await create(memory, **fields)
    times: list[int] = []
    while len(times) < count:
        due = await take_due(memory, clock, (await get(memory, schedule.schedule_id)).next_at)
        times.append(due.due_at)
        await record(memory, due)
    return times


async def test_a_firing_too_old_to_be_kept_is_not_recorded_again(serve: Serve, clock: Clock) -> None:
    """A service that takes over the run of an old firing reports it again."""
    async with serve(clock=clock) as memory:
        times = await next_times(memory, clock, FIRINGS_MAX + 1, cron="0 8 * * *")
        schedule = (await memory.call("ListSchedules")).schedules[0]
        for due_at in times[:2]:
            await record(memory, schedule_pb2.DueSchedule(schedule=schedule, due_at=due_at))
        firings = (await get(memory, schedule.schedule_id)).firings
    assert [firing.due_at for firing in firings] == times[:0:-1]


@pytest.mark.engines("postgres")
async def test_a_schedule_keeps_all_its_fields_over_a_restart(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        created = await create(memory, cron="30 9 * * 1-5", time_zone="Europe/Berlin", jitter_s=30, catch_up=True)
    async with serve(clock=clock) as memory:
        assert await get(memory, created.schedule_id) == created
    assert (created.name, created.overlap, created.next_at) == (
        "what is new?",
        "skip",
        at(30, 9, 30, zone="Europe/Berlin"),
    )
    assert created.created_at == created.updated_at == START


@pytest.mark.parametrize(
    ("month", "times"),
    [
        (3, [(28, 2, 30), (29, 3, 0), (30, 2, 30)]),  # 2:30 is not there on the 29th
        (10, [(25, 2, 30), (26, 2, 30)]),  # it comes twice on the 25th, and begins one run
    ],
)
async def test_times_follow_the_local_clock_over_a_change_of_offset(
    memory: Memory, clock: Clock, month: int, times: list[tuple[int, int, int]]
) -> None:
    berlin = "Europe/Berlin"
    clock.pass_to(at(times[0][0] - 1, 12, month=month))
    expected = [at(*time, zone=berlin, month=month) for time in times]
    assert await next_times(memory, clock, len(times), cron="30 2 * * *", time_zone=berlin) == expected


@pytest.mark.parametrize(
    ("month", "day", "cron", "hours"),
    [(10, 25, "0 * * * *", [1, 2, 3]), (3, 29, "0 * * * *", [1, 2, 3]), (3, 29, "0 */2 * * *", [3, 5, 7])],
)
async def test_intervals_follow_elapsed_time_over_a_change_of_offset(
    memory: Memory, clock: Clock, month: int, day: int, cron: str, hours: list[int]
) -> None:
    berlin = "Europe/Berlin"
    midnight = at(day, 0, month=month, zone=berlin)
    clock.pass_to(midnight)
    expected = [midnight + hour * HOUR for hour in hours]
    assert await next_times(memory, clock, len(hours), cron=cron, time_zone=berlin) == expected


async def test_a_single_time_fires_once(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, once_at=START + HOUR)
    assert (await list_due(memory)).next_at == START + HOUR
    due = await take_due(memory, clock, START + HOUR)
    assert (due.tenant, due.user, due.due_at) == ("default", "default", START + HOUR)
    await record(memory, due, run_id="r", chat_id="c")
    assert (await list_due(memory)) == schedule_pb2.ListDueSchedulesResponse()
    (firing,) = (await get(memory, schedule.schedule_id)).firings
    assert (firing.outcome, firing.run_id, firing.chat_id, firing.recorded_at) == ("started", "r", "c", START + HOUR)


async def test_a_firing_is_recorded_once(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    due = await take_due(memory, clock, schedule.next_at)
    await asyncio.gather(*(record(memory, due, run_id="r") for _ in range(10)))
    stored = await get(memory, schedule.schedule_id)
    assert len(stored.firings) == 1
    assert stored.next_at == schedule.next_at + HOUR


async def test_jitter_is_the_same_for_every_caller(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", jitter_s=600)
    starts_at = (await list_due(memory)).next_at
    assert schedule.next_at <= starts_at <= schedule.next_at + 600_000
    clock.pass_to(starts_at - 1)
    assert not (await list_due(memory)).due
    clock.pass_to(starts_at)
    assert (await list_due(memory)).due[0].due_at == schedule.next_at


async def test_times_that_nobody_could_start_are_recorded_as_missed(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    clock.pass_to(schedule.next_at + 5 * HOUR + store.GRACE_MS + 1)
    assert not (await list_due(memory)).due
    stored = await get(memory, schedule.schedule_id)
    assert [(firing.outcome, firing.due_at, firing.passed) for firing in stored.firings] == [
        ("missed", schedule.next_at, 5)
    ]
    assert stored.next_at == schedule.next_at + 6 * HOUR


async def test_with_catch_up_the_last_missed_time_is_started(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", catch_up=True)
    clock.pass_to(schedule.next_at + 5 * HOUR + store.GRACE_MS + 1)
    assert [due.due_at for due in (await list_due(memory)).due] == [schedule.next_at + 5 * HOUR]
    (due,) = (await list_due(memory)).due
    assert due.due_at == schedule.next_at + 5 * HOUR
    await record(memory, due)
    stored = await get(memory, schedule.schedule_id)
    assert [(firing.outcome, firing.due_at, firing.passed) for firing in stored.firings] == [
        ("started", schedule.next_at + 5 * HOUR, 0),
        ("missed", schedule.next_at, 4),
    ]
    assert not (await list_due(memory)).due


async def test_a_time_queued_for_the_previous_run_is_not_missed(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", overlap="queue")
    due = await take_due(memory, clock, schedule.next_at)
    while clock.now < schedule.next_at + 3 * HOUR:
        await record(memory, due, "queued")
        assert not (await list_due(memory)).due
        due = await take_due(memory, clock, clock.now + MINUTE)
    await record(memory, due, run_id="r")
    stored = await get(memory, schedule.schedule_id)
    assert [(firing.due_at, firing.passed) for firing in stored.firings] == [(schedule.next_at, 3)]
    assert stored.next_at == schedule.next_at + 4 * HOUR


async def test_a_paused_schedule_misses_no_times(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    await update(memory, schedule.schedule_id, paused=True)
    clock.pass_to(START + DAY)
    assert (await list_due(memory)) == schedule_pb2.ListDueSchedulesResponse()
    await update(memory, schedule.schedule_id, paused=False)
    stored = await get(memory, schedule.schedule_id)
    assert not stored.firings
    assert stored.next_at == schedule.next_at + DAY


async def test_a_trigger_starts_a_run_in_addition_to_the_times(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", paused=True)
    for _ in range(2):
        assert (await trigger(memory, schedule)).schedule.triggered_at == START
        clock.pass_to(START + 1000)
    (due,) = (await list_due(memory)).due
    await record(memory, due, run_id="r")
    stored = await get(memory, schedule.schedule_id)
    assert (stored.triggered_at, stored.next_at) == (0, schedule.next_at)
    assert [firing.due_at for firing in stored.firings] == [START]
    assert not (await list_due(memory)).due


async def trigger(
    memory: Memory, schedule: schedule_pb2.Schedule, request_id: str = ""
) -> schedule_pb2.TriggerScheduleResponse:
    return await memory.call("TriggerSchedule", schedule_id=schedule.schedule_id, request_id=request_id)


async def test_a_trigger_repeated_by_its_id_fires_once_even_after_its_run(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    assert (await trigger(memory, schedule, "a")).due_at == START
    (due,) = (await list_due(memory)).due
    await record(memory, due, run_id="r")
    again = await trigger(memory, schedule, "a")
    assert (again.due_at, again.schedule.triggered_at) == (START, 0)
    assert not (await list_due(memory)).due
    # In the same millisecond: each firing has a time of its own.
    assert (await trigger(memory, schedule, "b")).due_at == START + 1


async def test_twenty_firings_and_the_last_run_are_kept(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="* * * * *")
    failure = common_pb2.Failure(code="NOT_FOUND", message="agent 'guide' does not exist")
    for number in range(23):
        due = await take_due(memory, clock, (await get(memory, schedule.schedule_id)).next_at)
        assert due.last_run_id == ("" if number == 0 else "r")
        if number == 0:
            await record(memory, due, run_id="r")
        else:
            await record(memory, due, "failed", failure=failure)
    stored = await get(memory, schedule.schedule_id)
    assert len(stored.firings) == 20
    assert {firing.failure.code for firing in stored.firings} == {"NOT_FOUND"}
    assert [len(row.firings) for row in (await memory.call("ListSchedules")).schedules] == [1]


async def test_schedules_are_listed_page_by_page(memory: Memory, clock: Clock) -> None:
    schedule_ids = [(await create(memory, cron="0 * * * *", name=f"{number}")).schedule_id for number in range(5)]

    async def list_page(size: int, token: str = "") -> schedule_pb2.ListSchedulesResponse:
        return await memory.call("ListSchedules", page_size=size, page_token=token)

    whole = await list_page(0)
    everything = [row.schedule_id for row in whole.schedules]
    assert (sorted(everything), whole.next_page_token) == (sorted(schedule_ids), "")
    first = await list_page(2)
    await memory.call("DeleteSchedule", schedule_id=everything[1])
    second = await list_page(2, first.next_page_token)
    third = await list_page(2, second.next_page_token)
    pages = [[row.schedule_id for row in page.schedules] for page in (first, second, third)]
    assert (pages, third.next_page_token) == ([everything[:2], everything[2:4], everything[4:]], "")
    assert (await list_page(4)).next_page_token == "", "a page that is just full is the last one"
    for size, token in ((201, ""), (-1, ""), (2, "x")):
        with pytest.raises(InvalidRequest, match=r"page(Size|Token)"):
            await list_page(size, token)


async def test_a_change_takes_effect_at_once(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    clock.pass_to(START + 5)
    changed = await update(memory, schedule.schedule_id, once_at=START + DAY, message="and now?", overlap="queue")
    assert (changed.cron, changed.once_at, changed.next_at) == ("", START + DAY, START + DAY)
    assert (changed.message, changed.agent_key, changed.overlap) == ("and now?", "guide", "queue")
    assert (changed.created_at, changed.updated_at) == (START, START + 5)
    assert (await update(memory, schedule.schedule_id, cron="0 0 * * *")).once_at == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "cron"),
        ({"cron": "0 * * * *", "once_at": START + 1}, "cron"),
        ({"cron": "0 * * * * *"}, "cron"),
        ({"cron": "60 * * * *"}, "cron"),
        ({"cron": "@daily"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"once_at": START}, "onceAt"),
        ({"once_at": -1}, "onceAt"),
        ({"once_at": 2**62}, "onceAt"),
        ({"cron": "0 * * * *", "time_zone": "Mars/Base"}, "timeZone"),
        ({"cron": "0 * * * *", "time_zone": "../etc/passwd"}, "timeZone"),
        ({"cron": "0 * * * *", "time_zone": "Europe"}, "timeZone"),
        # The machine's own zone, and zones that count leap seconds.
        *(({"cron": "0 * * * *", "time_zone": zone}, "timeZone") for zone in ("localtime", "right/Europe/Berlin")),
        ({"cron": "0 * * * *", "jitter_s": 3601}, "jitterS"),
        ({"cron": "0 * * * *", "jitter_s": -1}, "jitterS"),
        ({"cron": "0 * * * *", "overlap": "maybe"}, "overlap"),
        ({"cron": "0 * * * *", "chat_id": "mine"}, "chatId"),
        ({"cron": "0 * * * *", "message": ""}, "message"),
        ({"cron": "0 * * * *", "agent_key": ""}, "agentKey"),
    ],
)
async def test_an_invalid_schedule_is_rejected_naming_the_field(
    memory: Memory, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await create(memory, **fields)
    assert caught.value.metadata["field"] == field


async def test_the_due_schedules_of_one_user_do_not_delay_those_of_others(memory: Memory, clock: Clock) -> None:
    for _ in range(store.DUE_MAX + 5):
        with acting_as(ADA):
            await create(memory, cron="0 * * * *")
    clock.pass_to(START + 1)
    with acting_as(BOB):
        late = await create(memory, cron="1 13 * * *")
    clock.pass_to(late.next_at)
    found = await list_due(memory)
    assert len(found.due) == store.DUE_MAX
    assert found.next_at == clock.now, "there is more"
    assert [due.user for due in found.due[:3]] == ["ada", "bob", "ada"]


async def test_a_refused_time_is_retried_and_then_missed_with_the_cause(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    clock.pass_to(schedule.next_at)
    failure = common_pb2.Failure(code="QUEUE_FULL", message="20 runs wait", retriable=True)
    while (found := await list_due(memory)).due:
        await record(memory, found.due[0], "refused", failure=failure)
        assert (await list_due(memory)).next_at == clock.now + store.RETRY_MS
        clock.pass_to(clock.now + store.RETRY_MS)
    assert clock.now > schedule.next_at + store.GRACE_MS
    (firing,) = (await get(memory, schedule.schedule_id)).firings
    assert (firing.outcome, firing.failure) == ("missed", failure)


async def test_a_change_of_other_fields_keeps_the_due_time(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", jitter_s=3600)
    clock.pass_to(schedule.next_at + 1)
    changed = await update(memory, schedule.schedule_id, name="other", message="and now?")
    assert changed.next_at == schedule.next_at
    clock.pass_to((await list_due(memory)).next_at)
    assert [due.due_at for due in (await list_due(memory)).due] == [schedule.next_at]


@pytest.mark.parametrize("outcome", ["queued", "refused"])
async def test_a_waiting_time_is_not_dropped_by_an_earlier_firing(memory: Memory, clock: Clock, outcome: str) -> None:
    schedule = await create(memory, cron="0 * * * *", overlap="queue")
    due = await take_due(memory, clock, schedule.next_at)
    clock.pass_to(schedule.next_at - 1000)  # of a trigger that takes long to be stored
    await trigger(memory, schedule)
    clock.pass_to(schedule.next_at + 1000)
    await record(memory, due, outcome)
    (triggered,) = (await list_due(memory)).due
    assert triggered.due_at == schedule.next_at - 1000
    await record(memory, triggered, run_id="triggered")
    assert [again.due_at for again in (await list_due(memory)).due] == [due.due_at]


async def test_a_trigger_does_not_drop_a_waiting_time(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *", overlap="queue")
    due = await take_due(memory, clock, schedule.next_at)
    await record(memory, due, "queued")
    clock.pass_to(schedule.next_at + 1000)
    await trigger(memory, schedule)
    await record(memory, due, run_id="first")
    (due,) = (await list_due(memory)).due
    assert due.due_at == schedule.next_at + 1000
    await record(memory, due, run_id="second")
    stored = await get(memory, schedule.schedule_id)
    assert [firing.run_id for firing in stored.firings] == ["second", "first"]
    assert stored.next_at == schedule.next_at + HOUR


async def test_a_started_run_is_recorded_even_if_the_schedule_has_changed(memory: Memory, clock: Clock) -> None:
    schedule = await create(memory, cron="0 * * * *")
    due = await take_due(memory, clock, schedule.next_at)
    changed = await update(memory, schedule.schedule_id, cron="30 * * * *")
    await record(memory, due, run_id="r")
    stored = await get(memory, schedule.schedule_id)
    assert ([firing.run_id for firing in stored.firings], stored.next_at) == (["r"], changed.next_at)


@pytest.mark.parametrize(
    ("made", "change", "field"),
    [
        ({"cron": "0 * * * *"}, {"cron": ""}, "cron"),
        ({"cron": "0 * * * *"}, {"jitter_s": -1}, "jitterS"),
        ({"once_at": START + 1}, {"time_zone": "No/Where"}, "timeZone"),
        ({"once_at": START + 1}, {"once_at": START}, "onceAt"),
        ({"once_at": START + 1}, {"message": ""}, "message"),
    ],
)
async def test_an_invalid_change_is_rejected_naming_the_field(
    memory: Memory, made: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    schedule = await create(memory, **made)
    with pytest.raises(InvalidRequest) as caught:
        await update(memory, schedule.schedule_id, **change)
    assert caught.value.metadata["field"] == field
    assert await get(memory, schedule.schedule_id) == schedule


async def test_a_repeated_create_request_returns_the_same_schedule(memory: Memory, clock: Clock) -> None:
    schedule_id = new_id()
    created = await create(memory, schedule_id=schedule_id, cron="0 * * * *")
    clock.pass_to(START + HOUR)
    assert await create(memory, schedule_id=schedule_id, cron="0 * * * *") == created
    failure = common_pb2.Failure(code="QUEUE_FULL", message="20 runs wait", retriable=True)
    await record(memory, (await list_due(memory)).due[0], "refused", failure=failure)
    assert (await create(memory, schedule_id=schedule_id, cron="0 * * * *")).next_at == created.next_at
    with pytest.raises(InvalidRequest):
        await create(memory, schedule_id=schedule_id, cron="5 * * * *")
    with acting_as(EVE), pytest.raises(InvalidRequest):
        await create(memory, schedule_id=schedule_id, cron="0 * * * *")


async def test_a_schedule_is_accessible_only_to_its_user(memory: Memory, clock: Clock) -> None:
    with acting_as(ADA):
        chat_id, _ = await memory.begin()
        schedule = await create(memory, cron="0 * * * *", chat_id=chat_id)
    named = {"schedule_id": schedule.schedule_id}
    for other in (BOB, EVE):
        with acting_as(other):
            with pytest.raises(NotFound):
                await create(memory, cron="0 * * * *", chat_id=chat_id)
            for rpc in ("UpdateSchedule", "DeleteSchedule"):
                with pytest.raises(NotFound):
                    await memory.call(rpc, **named)
            assert not (await memory.call("ListSchedules")).schedules
    due = await take_due(memory, clock, schedule.next_at)
    await memory.call_as(ADA, "DeleteSchedule", **named)
    with pytest.raises(NotFound):
        await memory.call_as(ADA, "DeleteSchedule", **named)
    with pytest.raises(NotFound):
        await record(memory, due)
    assert not (await list_due(memory)).due


async def test_the_number_of_a_users_schedules_is_bounded(memory: Memory) -> None:
    for start in range(0, store.SCHEDULES_MAX, 100):
        await asyncio.gather(*(create(memory, cron="0 * * * *", name=str(start + i)) for i in range(100)))
    with pytest.raises(QuotaExceeded):
        await create(memory, cron="0 * * * *")
    with acting_as(BOB):
        await create(memory, cron="0 * * * *")


async def test_a_started_run_replaces_a_skipped_firing_of_the_same_time(memory: Memory, clock: Clock) -> None:
    # Two services look at the same time: one finds the chat busy, and the other, a moment later, does not (seed 180).
    schedule = await create(memory, cron="0 * * * *")
    due = await take_due(memory, clock, schedule.next_at)
    await record(memory, due, "skipped")
    await record(memory, due, run_id="r", chat_id="c")
    await record(memory, due, "skipped")
    await record(memory, due, run_id="r2", chat_id="c")
    (firing,) = (await get(memory, schedule.schedule_id)).firings
    assert (firing.outcome, firing.run_id, firing.chat_id, firing.due_at) == ("started", "r", "c", due.due_at)
    next_due = await take_due(memory, clock, schedule.next_at + HOUR)
    assert next_due.last_run_id == "r", "the next time looks whether it goes on"


async def test_an_unknown_agent_is_rejected(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        before = await create(memory, cron="0 8 * * *", agent_key="anybody")  # no orchestrator has said what it has
        await memory.call_as(None, "ListDueSchedules", agent_keys=["guide", "Baker"])
        await create(memory, cron="0 8 * * *", agent_key="baker")
        await create(memory, cron="0 8 * * *", agent_key="default")
        with pytest.raises(NotFound, match="no agent in force has the key 'nobody'; known keys: baker, guide"):
            await create(memory, cron="0 8 * * *", agent_key="nobody")
        with pytest.raises(NotFound, match="nobody"):
            await update(memory, before.schedule_id, agent_key="nobody")
        assert (await update(memory, before.schedule_id, agent_key="guide")).agent_key == "guide"
        await list_due(memory)  # as an older orchestrator asks
        with pytest.raises(NotFound, match="nobody"):
            await create(memory, cron="0 8 * * *", agent_key="nobody")
        await memory.call("PutAgentDefinition", agent_key="own", definition="{}", version=1)
        assert (await create(memory, cron="0 8 * * *", agent_key="own")).agent_key == "own"
