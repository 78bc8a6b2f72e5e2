"""Schedules whose user is suspended or has no key, or that an operator holds, lists or deletes, on both engines."""

import json
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.issuing import key_settings
from tests.support.memory.engines import Serve
from tests.support.memory.schedules import ADA, BOB, DAY, EVE, Clock, create, get, list_due, take_due, update

pytestmark = pytest.mark.engines

OLGA = Identity("acme", "olga", scopes=ALL_SCOPES)
OTTO = Identity("acme", "otto", scopes=ALL_SCOPES)
STRANGER = Identity("globex", "root", scopes=ALL_SCOPES)
DAILY = "0 8 * * *"


async def test_an_operator_lists_holds_and_deletes_the_schedules_of_all_users(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        with acting_as(ADA):
            adas = await create(memory, cron=DAILY, message="my secret plan")
        with acting_as(BOB):
            bobs = await create(memory, cron=DAILY)
        with acting_as(EVE):
            await create(memory, cron=DAILY)
        for who in (ADA, BOB):
            with acting_as(who), pytest.raises(PermissionDenied):
                await memory.call("ListSchedules", scope="tenant")
        with acting_as(STRANGER), pytest.raises(NotFound):
            await update(memory, adas.schedule_id, held=True)
        with acting_as(OLGA):
            listed = (await memory.call("ListSchedules", scope="tenant")).schedules
            assert {(item.user, item.schedule_id) for item in listed} == {
                ("ada", adas.schedule_id),
                ("bob", bobs.schedule_id),
            }
            assert [
                item.user for item in (await memory.call("ListSchedules", scope="tenant", user="bob")).schedules
            ] == ["bob"]
            schedule = await get(memory, adas.schedule_id)
            assert (schedule.name, schedule.message, schedule.cron) == ("", "", DAILY)
            assert (await update(memory, adas.schedule_id, held=True)).held == "operator"
            with pytest.raises(NotFound):
                await update(memory, adas.schedule_id, paused=True)
            with pytest.raises(InvalidRequest, match="held"):
                await update(memory, adas.schedule_id, held=False, paused=True)
            await memory.call("DeleteSchedule", schedule_id=bobs.schedule_id)
            lines = [json.loads(item.line) for item in (await memory.call("ListAudit", event="schedule")).lines]
            assert [(line["event"], line["by"], line["of"]) for line in lines[:2]] == [
                ("schedule.deleted", "olga", "bob"),
                ("schedule.changed", "olga", "ada"),
            ]
        with acting_as(ADA), pytest.raises(PermissionDenied):
            await update(memory, adas.schedule_id, held=False)
        clock.pass_to(adas.next_at)
        assert [due.user for due in (await list_due(memory)).due] == ["eve"]
        with acting_as(ADA):
            held = await get(memory, adas.schedule_id)
        assert ([item.outcome for item in held.firings], held.next_at) == (["skipped"], adas.next_at + DAY)
        with acting_as(OLGA):
            assert not (await update(memory, adas.schedule_id, held=False)).HasField("held")


async def test_the_schedules_of_a_suspended_user_are_held_until_the_user_is_released(
    serve: Serve, clock: Clock, tmp_path: Path
) -> None:
    settings = key_settings(tmp_path, filed="acme/ada")
    async with serve(clock=clock, auth=settings) as memory:
        with acting_as(ADA):
            schedule = await create(memory, cron=DAILY)
        with acting_as(OLGA):
            suspended = (await memory.call("SuspendUser", user="ada")).user
            assert (suspended.user, suspended.suspended_by) == ("ada", "olga")
            assert (await get(memory, schedule.schedule_id)).held == "suspended"
            await update(memory, schedule.schedule_id, held=True)
            assert (await update(memory, schedule.schedule_id, held=False)).held == "suspended"
    async with serve(clock=clock, auth=settings) as memory:
        clock.pass_to(schedule.next_at)
        assert not (await list_due(memory)).due
        with acting_as(OLGA):
            await memory.call("ReleaseUser", user="ada")
            released = await get(memory, schedule.schedule_id)
        assert ([firing.outcome for firing in released.firings], released.HasField("held")) == (["skipped"], False)
        assert (await take_due(memory, clock, released.next_at)).user == "ada"


async def test_a_schedule_is_held_while_its_user_has_no_valid_key(serve: Serve, clock: Clock, tmp_path: Path) -> None:
    async with serve(clock=clock, auth=key_settings(tmp_path, filed="acme/zoe")) as memory:
        with acting_as(ADA):
            schedule = await create(memory, cron=DAILY)
        with acting_as(OLGA):
            key = (await memory.call("CreateKey", name="laptop", user="ada")).key
        with acting_as(OTTO):
            await memory.call("ConfirmKey", key_id=key.key_id)
        assert (await take_due(memory, clock, schedule.next_at)).user == "ada"
        with acting_as(OLGA):
            await memory.call("RevokeKey", key_id=key.key_id)
        assert not (await list_due(memory)).due
        with acting_as(ADA):
            held = await get(memory, schedule.schedule_id)
        assert (held.held, [firing.outcome for firing in held.firings]) == ("no_credential", ["skipped"])
        with acting_as(ADA):  # she has signed in and made a new key
            await memory.call_as(Identity("acme", "ada", scopes=ALL_SCOPES), "CreateKey", name="new", user="ada")
        assert (await take_due(memory, clock, held.next_at)).user == "ada"
