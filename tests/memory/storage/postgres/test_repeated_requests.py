"""Replies to repeated requests while a database shows data that a fail-over may lose, with the model of a database."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import Any

import asyncpg
import grpc
import pytest
from msgspec.structs import replace

from headrace.errors import Overloaded
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.memory.storage.records.kind import make_version
from services.memory.storage.records.schedules import Schedule
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.engines import ModelledTables
from tests.support.memory.gates import approval, granting
from tests.support.memory.writing import Memory, new_id
from trials.simulation.postgres.server import Server as ModelServer

DRAIN_S = 0.5

SHARED = new_id()
"""Request id of the sharing."""

LIMITS = Limits(2, 5.0)

Ask = Callable[[Memory, str], Awaitable[Any]]


def asking(rpc: str, id_field: str, **fields: Any) -> Ask:
    """Return a function that sends a request which names its record."""

    async def ask(memory: Memory, record_id: str) -> Any:
        return await memory.call(rpc, **{id_field: record_id}, **fields)

    return ask


async def prepare_nothing(memory: Memory, record_id: str) -> None:
    pass


async def put_agent(memory: Memory, record_id: str) -> Any:
    return await memory.call("PutAgentDefinition", agent_key="guide", definition="{}", version=1)


make_schedule = asking("CreateSchedule", "schedule_id", agent_key="guide", message="what is new?", cron="0 8 * * *")
make_webhook = asking("CreateWebhook", "webhook_id", url="https://hooks.example/in")
make_key = asking("CreateKey", "key_id", name="laptop", user="bob")
place_hold = asking("PlaceHold", "request_id", user="bob", reason="a case")
erase_user = asking("EraseData", "request_id", user="bob", reason="asked")
revoke_key = asking("RevokeKey", "key_id")
share_chat = asking("ShareChat", "chat_id", shared_with=["user:bob"], request_id=SHARED)
name_chat = asking("UpdateChat", "chat_id", title="Chats")
pin_message = asking("PinMessage", "chat_id", n=1)
revoke_grant = asking("RevokeGrant", "chat_id", grant_id="g_1")


async def begin_chat(memory: Memory, record_id: str) -> None:
    _, run_id = await memory.begin_with(approval("approval_1", "medium"), chat_id=record_id)
    await memory.append(record_id, run_id, granting("g_1"))


def after_chat(ask: Ask) -> Ask:
    async def prepare(memory: Memory, record_id: str) -> None:
        await begin_chat(memory, record_id)
        await ask(memory, record_id)

    return prepare


@pytest.mark.parametrize(
    ("prepare", "ask"),
    [
        *((prepare_nothing, ask) for ask in (make_schedule, make_webhook, make_key)),
        *((ask, ask) for ask in (place_hold, erase_user, put_agent)),
        *((after_chat(ask), ask) for ask in (share_chat, name_chat, pin_message, revoke_grant)),
        (make_key, revoke_key),
    ],
    ids=["schedule", "webhook", "key", "hold", "erasure", "agent", "sharing", "title", "pin", "grant", "revocation"],
)
async def test_data_that_the_standby_lacks_is_not_acknowledged_although_it_can_be_read(
    modelled: ModelServer, prepare: Ask, ask: Ask
) -> None:
    """Found by seed 1245 of trials/simulation for schedules."""
    record_id = new_id()
    async with ModelledTables(modelled).memory() as memory, asyncio.TaskGroup() as group:
        with acting_as(Identity("acme", "ada", scopes=ALL_SCOPES)):
            await prepare(memory, record_id)

            async def try_in_vain() -> asyncio.Task[Any]:
                asking_task = group.create_task(_wait_for(ask(memory, record_id)))
                await asyncio.wait([asking_task], timeout=DRAIN_S)
                assert not asking_task.done(), "the standby does not have it"
                return asking_task

            modelled.has_standby = False
            (await try_in_vain()).cancel()
            modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"))
            modelled.start()
            repeated = await try_in_vain()
            modelled.find_standby()
            assert await repeated


async def test_a_change_based_on_a_lost_version_does_not_apply_to_its_replacement(modelled: ModelServer) -> None:
    """Found by seed 14307 of trials/simulation: a record of a run overwrote an acknowledged trigger."""
    schedule_id = new_id()

    async with ModelledTables(modelled).memory() as memory, open_postgres("postgresql://modelled", LIMITS) as engine:
        find = partial(engine.records.schedules.find, schedule_id)

        async def rename(schedule: Schedule | None, name: str) -> Schedule:
            assert schedule is not None
            changed = await engine.records.schedules.change(schedule, lambda stored: replace(stored, name=name))
            assert changed is not None
            return changed

        with acting_as(Identity("acme", "ada", scopes=ALL_SCOPES)):
            await make_schedule(memory, schedule_id)
        with closing(modelled.tables.keep_copy()) as standby:
            lost = await rename(await find(), "taken back")
            modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"))
            modelled.tables.restore(standby)
            modelled.start()
        replacement = await rename(await find(), "instead")
        change = replace(lost, name="behind it", version=make_version())
        assert not await engine.records.schedules.put(change, lost.version)
        assert await find() == replacement


@pytest.mark.parametrize(
    "ask",
    [place_hold, erase_user, make_schedule, make_webhook, make_key],
    ids=["hold", "erasure", "schedule", "webhook", "key"],
)
async def test_a_repeated_request_is_not_acknowledged_if_a_fail_over_loses_its_record(
    modelled: ModelServer, ask: Ask
) -> None:
    """Found by seeds 37647 and 79995 of trials/simulation: the creator of a webhook was told later that it does not
    exist.
    """
    record_id = new_id()
    async with ModelledTables(modelled).memory() as memory:
        with acting_as(Identity("acme", "ada", scopes=ALL_SCOPES)), closing(modelled.tables.keep_copy()) as standby:
            await ask(memory, record_id)
            modelled.has_standby = False
            repeated = asyncio.create_task(_wait_for(ask(memory, record_id)))
            await asyncio.wait([repeated], timeout=DRAIN_S)
            assert not repeated.done(), "the standby does not have it"
            modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"), keeps_last=False)
            modelled.tables.restore(standby)
            modelled.find_standby()
            modelled.start()
            with pytest.raises((grpc.aio.AioRpcError, Overloaded), match="back in a fail-over"):
                await repeated
            assert await ask(memory, record_id), "who asks again has it stored anew"


async def test_storing_a_record_again_does_not_conflict_with_other_changes(modelled: ModelServer) -> None:
    schedule_id = new_id()
    async with ModelledTables(modelled).memory() as memory, open_postgres("postgresql://modelled", LIMITS) as engine:
        find = partial(engine.records.schedules.find, schedule_id)
        with acting_as(Identity("acme", "ada", scopes=ALL_SCOPES)):
            await make_schedule(memory, schedule_id)
        read = await find()
        assert read is not None
        assert await engine.records.schedules.keep(read) == read == await find()
        changed = replace(read, name="new", version=make_version())
        assert await engine.records.schedules.put(changed, read.version), "who has read it before may still change it"


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer
