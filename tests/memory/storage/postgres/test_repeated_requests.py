"""What a repeated request is told while a database shows what a fail-over may forget, which is modelled here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.memory.conftest import ModelledTables, ModelServer
from tests.memory.keys.test_rpcs import call as call_keys
from tests.memory.schedules.test_schedules import create as create_schedule
from tests.memory.webhooks.test_rpcs import call as call_webhooks
from tests.memory.writing import Memory, new_id

SETTLES_S = 0.5

Ask = Callable[[Memory, str], Awaitable[Any]]


async def prepare_nothing(memory: Memory, record_id: str) -> None:
    pass


async def make_schedule(memory: Memory, record_id: str) -> Any:
    return await create_schedule(memory, schedule_id=record_id, cron="0 8 * * *")


async def make_webhook(memory: Memory, record_id: str) -> Any:
    return await call_webhooks(memory, "CreateWebhook", webhook_id=record_id, url="https://hooks.example/in")


async def make_key(memory: Memory, record_id: str) -> Any:
    return await call_keys(memory, "CreateKey", key_id=record_id, name="laptop", user="bob")


async def revoke_key(memory: Memory, record_id: str) -> Any:
    return await call_keys(memory, "RevokeKey", key_id=record_id)


@pytest.mark.parametrize(
    ("prepare", "ask"),
    [
        (prepare_nothing, make_schedule),
        (prepare_nothing, make_webhook),
        (prepare_nothing, make_key),
        (make_key, revoke_key),
    ],
)
async def test_what_the_standby_lacks_is_not_acknowledged_because_it_can_be_read(
    modelled: ModelServer, prepare: Ask, ask: Ask
) -> None:
    """Found by seed 1245 of tests/simulation for schedules."""
    record_id = new_id()
    async with ModelledTables(modelled).memory() as memory, asyncio.TaskGroup() as group:
        with acting_as(Identity("acme", "ada", scopes=ALL_SCOPES)):
            await prepare(memory, record_id)

            async def try_in_vain() -> asyncio.Task[Any]:
                asked = group.create_task(_wait_for(ask(memory, record_id)))
                await asyncio.wait([asked], timeout=SETTLES_S)
                assert not asked.done(), "the standby does not have it"
                return asked

            modelled.has_standby = False
            (await try_in_vain()).cancel()
            modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"))
            modelled.start()
            repeated = await try_in_vain()
            modelled.find_standby()
            assert await repeated


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer
