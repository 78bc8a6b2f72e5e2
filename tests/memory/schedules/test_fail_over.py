"""What a repeated request is told while a database shows what a fail-over may forget, which is modelled here."""

from __future__ import annotations

import asyncio

import asyncpg

from headrace.v1 import schedule_pb2
from tests.memory.conftest import ModelledTables, ModelServer
from tests.memory.schedules.test_schedules import create, get
from tests.memory.writing import new_id

SETTLES_S = 0.5


async def test_what_the_standby_lacks_is_not_acknowledged_because_it_can_be_read(modelled: ModelServer) -> None:
    async with ModelledTables(modelled).memory() as memory, asyncio.TaskGroup() as group:
        schedule_id = new_id()

        async def ask() -> asyncio.Task[schedule_pb2.Schedule]:
            asked = group.create_task(create(memory, schedule_id=schedule_id, cron="0 8 * * *"))
            await asyncio.wait([asked], timeout=SETTLES_S)
            assert not asked.done(), "the standby does not have it"
            return asked

        modelled.has_standby = False
        (await ask()).cancel()
        modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"))
        modelled.start()
        assert (await get(memory, schedule_id)).schedule_id, "it can be read"
        repeated = await ask()
        modelled.find_standby()
        assert await repeated == await get(memory, schedule_id)
