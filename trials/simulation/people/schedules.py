"""Users with schedules: they create and trigger them, and record the outcome of each time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.v1 import schedule_pb2
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid
from trials.simulation.people.asked import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trials.simulation.people.person import Person
    from trials.simulation.plan import PlannedSchedule

CALL_S = 20.0

AHEAD_MS = 8000
"""How far a service's clock may be ahead: the greatest skew of a world, and its drift."""

SETTLED_S = 100.0
"""Time after a schedule's last time, and after the faults, until its outcome is read."""

LOOKS_MAX = 10
"""Maximum number of reads while a trigger waits for a chat with a run that has an unanswered gate."""


async def keep_schedules(
    user: Person, planned: Sequence[PlannedSchedule], chat_ids: Sequence[str], until: asyncio.Event
) -> None:
    """Keep all schedules until all questions are done; then pause them."""
    async with asyncio.TaskGroup() as group:
        for one in planned:
            group.create_task(_keep(user, one, chat_ids, until))


async def _keep(user: Person, planned: PlannedSchedule, chat_ids: Sequence[str], until: asyncio.Event) -> None:
    await asyncio.sleep(planned.at_s)
    schedule_id = new_uuid()
    made = schedule_pb2.CreateScheduleRequest(
        schedule_id=schedule_id,
        agent_key=planned.agent,
        message="a question by the clock",
        overlap=planned.overlap,
        catch_up=planned.catch_up,
        chat_id="" if planned.chat is None else chat_ids[planned.chat],
    )
    if planned.every_minutes:
        made.cron = f"*/{planned.every_minutes} * * * *"
    else:
        made.once_at = now_ms() + round(planned.in_s * 1000)
    answer = await user.try_until_answered(lambda: user.schedules.CreateSchedule(made, timeout=CALL_S))
    if answer is None:
        # The chat has no question yet, or the time had passed before memory answered or by memory's clock.
        if user.refusal != "NOT_FOUND" and not 0 < made.once_at <= now_ms() + AHEAD_MS:
            user.problems.append(f"schedule {schedule_id} was refused: {user.refusal}")
        return
    user.story.tell(f"{user.name} makes schedule {schedule_id[:4]}", count="user schedule")
    kept = Kept(schedule_id, answer.schedule)
    user.kept.append(kept)
    async with asyncio.TaskGroup() as group:
        for after_s in planned.triggers_s:
            group.create_task(_trigger(user, kept, after_s))
        await until.wait()
        await asyncio.sleep(max(0.0, (made.once_at - now_ms()) / 1000) + SETTLED_S)
    if not await _look_until_begun(user, kept):
        user.problems.append(f"schedule {schedule_id} is gone: {user.refusal}")
        return
    pause: Any = schedule_pb2.UpdateScheduleRequest(schedule_id=schedule_id, paused=True)
    await user.try_until_answered(lambda: user.schedules.UpdateSchedule(pause, timeout=CALL_S))


async def _look_until_begun(user: Person, kept: Kept) -> bool:
    """Read the schedule until no trigger waits, at most LOOKS_MAX times; return False if it is missing."""
    get = schedule_pb2.GetScheduleRequest(schedule_id=kept.schedule_id)
    for look in range(LOOKS_MAX):
        if look:
            await asyncio.sleep(SETTLED_S / 2)
        answer = await user.try_until_answered(lambda: user.schedules.GetSchedule(get, timeout=CALL_S))
        if answer is None:
            return False
        kept.last = answer.schedule
        if not kept.last.triggered_at:
            break
    return True


async def _trigger(user: Person, kept: Kept, after_s: float) -> None:
    await asyncio.sleep(after_s)
    request = schedule_pb2.TriggerScheduleRequest(schedule_id=kept.schedule_id, request_id=new_uuid())

    async def try_once() -> schedule_pb2.TriggerScheduleResponse:
        kept.tries += 1
        return await user.schedules.TriggerSchedule(request, timeout=CALL_S)

    answer = await user.try_until_answered(try_once)
    if answer is None:
        user.problems.append(f"a trigger of schedule {kept.schedule_id} was refused: {user.refusal}")
    else:
        kept.triggered_at.append(answer.due_at)
