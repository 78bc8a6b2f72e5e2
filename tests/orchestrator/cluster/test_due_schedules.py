"""Schedules that are due: each time begins one run, whoever looks and whatever is killed, or says why not."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, memory_pb2, schedule_pb2
from headrace.v1.schedule_pb2_grpc import ScheduleServiceStub
from services.memory.webhooks.signing import make_headers
from services.runtime.auth.caller_credentials import build_caller_metadata
from services.runtime.auth.callers import FACADE
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.rpc.channels import open_channel
from tests.orchestrator.calls.test_answerers import KEYS, as_user
from tests.orchestrator.conftest import House, Open, content, finish
from tests.orchestrator.replicas import replica, two
from tests.support.timing import within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

ANSWER = content("All ", "good.") + finish()
SLOW = [*content("Hel"), 3600.0]
CHAT = "9f3c1f2e-5a77-4d0e-8f0e-3d1f7a0b1c2d"


class Schedules:
    def __init__(self, stub: Any) -> None:
        self._stub = stub

    async def create(self, **fields: Any) -> str:
        asked: dict[str, Any] = {"agent_key": "react", "message": "what is new?"} | fields
        with rpc_errors():
            answer = await self._stub.CreateSchedule(schedule_pb2.CreateScheduleRequest(**asked))
        return answer.schedule.schedule_id

    async def create_and_trigger(self, **fields: Any) -> str:
        schedule_id = await self.create(cron="0 0 1 1 *", **fields)
        await self.trigger(schedule_id)
        return schedule_id

    async def trigger(self, schedule_id: str) -> None:
        with rpc_errors():
            await self._stub.TriggerSchedule(schedule_pb2.TriggerScheduleRequest(schedule_id=schedule_id))

    async def post(self, schedule_id: str, event_id: str, body: str) -> None:
        """Post as another system does."""
        with rpc_errors():
            rotate = schedule_pb2.RotateScheduleSecretRequest(schedule_id=schedule_id)
            secret = (await self._stub.RotateScheduleSecret(rotate)).secret
            proof = make_headers(event_id, int(time.time()), body.encode(), [secret])
            request = schedule_pb2.ReceiveWebhookRequest(
                schedule_id=schedule_id,
                webhook_id=event_id,
                timestamp=proof["webhook-timestamp"],
                signature=proof["webhook-signature"],
                payload=body.encode(),
            )
            assert (await self._stub.ReceiveWebhook(request)).status == "accepted"

    async def get(self, schedule_id: str) -> schedule_pb2.Schedule:
        with rpc_errors():
            return (await self._stub.GetSchedule(schedule_pb2.GetScheduleRequest(schedule_id=schedule_id))).schedule

    async def wait_for(
        self, schedule_id: str, condition: Callable[[schedule_pb2.Schedule], Any]
    ) -> schedule_pb2.Schedule:
        async with within(60):
            while not condition(schedule := await self.get(schedule_id)):
                await asyncio.sleep(0.05)
        return schedule

    async def wait_for_firings(self, schedule_id: str, count: int) -> list[schedule_pb2.Firing]:
        return list((await self.wait_for(schedule_id, lambda schedule: len(schedule.firings) == count)).firings)


@asynccontextmanager
async def schedules_of(it: House) -> AsyncGenerator[Schedules]:
    async with open_channel(it.config.memory_address, build_caller_metadata(it.config.server.auth, FACADE)) as channel:
        yield Schedules(ScheduleServiceStub(channel))


async def events_of(it: House, run_id: str) -> list[agent_pb2.AgentDelta]:
    async with it.client.attach(run_id) as deltas:
        return [delta async for delta in deltas]


async def test_a_time_that_is_due_begins_a_run_in_a_chat_of_its_own(house: Open) -> None:
    async with house(ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create(once_at=int(time.time() * 1000) + 300)
        [firing] = await schedules.wait_for_firings(schedule_id, 1)
        events = await events_of(it, firing.run_id)
    assert firing.outcome == "started"
    assert events[0].request_query.message == "what is new?"
    assert events[0].request_query.chat_id == firing.chat_id
    assert events[-1].HasField("run_complete")
    assert len(it.llm.requests) == 1


async def test_runs_of_one_chat_are_told_what_was_said_before(house: Open) -> None:
    async with house(ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create_and_trigger(chat_id=CHAT, overlap="queue")
        await schedules.wait_for_firings(schedule_id, 1)
        await schedules.trigger(schedule_id)
        firings = await schedules.wait_for_firings(schedule_id, 2)
        for firing in firings:
            assert (await events_of(it, firing.run_id))[-1].HasField("run_complete")
    assert {firing.chat_id for firing in firings} == {CHAT}
    assert [len(request.messages) for request in it.llm.requests] == [1, 3]


async def test_a_time_at_which_the_last_run_goes_on_is_skipped(house: Open) -> None:
    async with house(SLOW) as it, schedules_of(it) as schedules:
        for chat_id in ("", CHAT):
            schedule_id = await schedules.create_and_trigger(chat_id=chat_id)
            await schedules.wait_for_firings(schedule_id, 1)
            await schedules.trigger(schedule_id)
            firings = await schedules.wait_for_firings(schedule_id, 2)
            assert [firing.outcome for firing in firings] == ["skipped", "started"]


@pytest.mark.parametrize("chat_id", ["", CHAT])
async def test_a_time_waits_for_the_last_run_where_that_is_wanted(house: Open, chat_id: str) -> None:
    async with house(SLOW, ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create_and_trigger(overlap="queue", chat_id=chat_id)
        [first] = await schedules.wait_for_firings(schedule_id, 1)
        await schedules.trigger(schedule_id)
        for _ in range(3):
            await asyncio.sleep(0.2)
            assert len((await schedules.get(schedule_id)).firings) == 1
        await it.client.cancel(first.run_id)
        second, _ = await schedules.wait_for_firings(schedule_id, 2)
        assert (await events_of(it, second.run_id))[-1].HasField("run_complete")


async def test_what_cannot_begin_says_why(house: Open) -> None:
    async with house(ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create_and_trigger(agent_key="nobody")
        [firing] = await schedules.wait_for_firings(schedule_id, 1)
    assert (firing.outcome, firing.failure.code) == ("failed", "NOT_FOUND")
    assert "nobody" in firing.failure.message


async def test_replicas_that_look_at_once_begin_one_run(house: Open) -> None:
    async with house(ANSWER) as it, replica(it, "b"), replica(it, "c"), schedules_of(it) as schedules:
        ids = [await schedules.create_and_trigger(message=f"number {number}") for number in range(10)]
        for schedule_id in ids:
            [firing] = await schedules.wait_for_firings(schedule_id, 1)
            assert (await events_of(it, firing.run_id))[-1].HasField("run_complete")
        assert len(it.llm.requests) == 10
        chats = await it.memory.ListChats(memory_pb2.ListChatsRequest(page_size=50), None)
    assert len(chats.chats) == 10


async def test_what_was_begun_and_not_recorded_is_the_same_run(house: Open) -> None:
    async with house(ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create_and_trigger(chat_id=CHAT)
        due_at = (await schedules.get(schedule_id)).triggered_at
        # As a replica does that is killed before it records the firing.
        request_id = f"{schedule_id}:{due_at}"
        async with it.client.ask("what is new?", agent_key="react", chat_id=CHAT, request_id=request_id) as deltas:
            run_ids = [delta.run_start.run_id async for delta in deltas if delta.HasField("run_start")]
        [firing] = await schedules.wait_for_firings(schedule_id, 1)
    assert [(firing.outcome, firing.run_id)] == [("started", run_id) for run_id in run_ids]
    assert len(it.llm.requests) == 1


async def take_over_run_of(it: House, schedule_id: str, due_at: int) -> str:
    """Have the run of a time begin at one replica, and go on at another; return its id."""
    async with two(it) as (a, b), as_user(a.address, "ada") as at_a, as_user(b.address, "ada") as at_b:
        ask = at_a.ask("what is new?", agent_key="react", chat_id=CHAT, request_id=f"{schedule_id}:{due_at}")
        async with ask as deltas:
            run_id = await anext(delta.run_start.run_id async for delta in deltas if delta.HasField("run_start"))
            await a.stop()
        async with at_b.attach(run_id) as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
    return run_id


async def test_whoever_takes_a_run_over_corrects_what_was_told_of_its_time(house: Open) -> None:
    """Its first owner had not recorded it, and a replica that found the chat busy had recorded that there is none."""
    async with house(SLOW, SLOW, ANSWER) as it, schedules_of(it) as schedules:
        async with it.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            busy = await anext(delta.run_start.run_id async for delta in deltas if delta.HasField("run_start"))
            schedule_id = await schedules.create_and_trigger(chat_id=CHAT)
            [skipped] = await schedules.wait_for_firings(schedule_id, 1)
            await it.client.cancel(busy)
        run_id = await take_over_run_of(it, schedule_id, skipped.due_at)
        [firing] = (await schedules.get(schedule_id)).firings
    assert skipped.outcome == "skipped"
    assert (firing.outcome, firing.run_id, firing.chat_id) == ("started", run_id, CHAT)


async def test_a_run_that_bears_the_name_of_somebody_elses_time_is_none_of_it(house: Open) -> None:
    async with house(SLOW, ANSWER, keys=KEYS) as it, schedules_of(it) as schedules:
        with acting_as(Identity("acme", "bob")):
            schedule_id = await schedules.create(cron="0 0 1 1 *")
        await take_over_run_of(it, schedule_id, 1_767_225_600_000)
        with acting_as(Identity("acme", "bob")):
            assert list((await schedules.get(schedule_id)).firings) == []


async def test_what_was_posted_begins_a_run_that_is_told_of_it(house: Open) -> None:
    async with house(ANSWER) as it, schedules_of(it) as schedules:
        schedule_id = await schedules.create(on_webhook=True, message="Sum up: {{payload}}")
        await schedules.post(schedule_id, "e1", '{"ticket": 7}')
        [firing] = await schedules.wait_for_firings(schedule_id, 1)
        events = await events_of(it, firing.run_id)
    assert (firing.outcome, firing.webhook_id) == ("started", "e1")
    assert events[0].request_query.message.startswith('Sum up: <payload>\n{"ticket": 7}\n</payload>')
    assert events[-1].HasField("run_complete")
