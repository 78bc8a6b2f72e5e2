"""Calls of memory's schedules, as the facade makes them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.streams import rpc_errors
from headrace.v1 import schedule_pb2
from headrace.v1.schedule_pb2_grpc import ScheduleServiceStub
from services.memory.webhooks.forms import make_headers
from services.runtime.auth.callers import FACADE
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from tests.support.orchestrator.suite import Suite
from tests.support.timing import within


class Schedules:
    def __init__(self, stub: Any) -> None:
        self._stub = stub

    async def create(self, **fields: Any) -> str:
        schedule_fields: dict[str, Any] = {"agent_key": "react", "message": "what is new?"} | fields
        with rpc_errors():
            answer = await self._stub.CreateSchedule(schedule_pb2.CreateScheduleRequest(**schedule_fields))
        return answer.schedule.schedule_id

    async def create_and_trigger(self, **fields: Any) -> str:
        schedule_id = await self.create(cron="0 0 1 1 *", **fields)
        await self.trigger(schedule_id)
        return schedule_id

    async def trigger(self, schedule_id: str) -> None:
        with rpc_errors():
            await self._stub.TriggerSchedule(schedule_pb2.TriggerScheduleRequest(schedule_id=schedule_id))

    async def post(self, schedule_id: str, event_id: str, body: str) -> None:
        """Post a signed payload, like another system."""
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
async def schedules_of(suite: Suite) -> AsyncGenerator[Schedules]:
    async with open_channel(
        suite.config.memory_address, build_caller_metadata(suite.config.server.auth, FACADE)
    ) as channel:
        yield Schedules(ScheduleServiceStub(channel))
