"""PostgreSQL and the model of it for simulated worlds behave alike where transactions meet."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import asyncpg
import pytest

from services.memory.storage.postgres.migrations import migrate_tables
from trials.simulation.postgres.driver import DirectWay, connect_to
from trials.simulation.postgres.server import Server as ModelServer

Open: TypeAlias = Callable[[], Awaitable[Any]]

TIMEOUT_MS = 300
"""The time after which a waiting statement is cancelled."""

WAIT_S = 60.0

_INSERT = "INSERT INTO schedules VALUES ($1, 't', 'u', 0, 0, 1, $2)"
_UPDATE = "UPDATE schedules SET version = version + 1 WHERE schedule_id = $1 RETURNING version"
_COUNT = "SELECT count(*) FROM schedules"
_TELL = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('budgets of ' || $1, 0))"


@pytest.fixture(params=["database_url", "modelled"])
def database(request: pytest.FixtureRequest) -> str | ModelServer:
    """An empty database: an address, or a model."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def connect(database: str | ModelServer) -> AsyncGenerator[Open]:
    """Open connections to an empty database with the store's tables."""
    settings = {"statement_timeout": str(TIMEOUT_MS)}
    async with AsyncExitStack() as stack:

        async def connect() -> Any:
            if isinstance(database, str):
                opened = await asyncpg.connect(database, server_settings=settings)
            else:
                opened = connect_to(database, DirectWay(), {"server_settings": settings})
            stack.callback(opened.terminate)
            return opened

        await migrate_tables(await connect())
        yield connect


async def test_uncommitted_rows_are_invisible_to_others(connect: Open) -> None:
    first, second = await connect(), await connect()
    async with first.transaction():
        await first.execute(_INSERT, "a", b"")
        assert (await first.fetchval(_COUNT), await second.fetchval(_COUNT)) == (1, 0)
    assert await second.fetchval(_COUNT) == 1


async def test_a_row_has_one_writer_at_a_time_and_a_second_one_times_out(connect: Open) -> None:
    first, second = await connect(), await connect()
    await first.execute(_INSERT, "a", b"")
    async with first.transaction():
        assert await first.fetchval(_UPDATE, "a") == 2
        with pytest.raises(asyncpg.QueryCanceledError):
            await second.fetchval(_UPDATE, "a")
    assert await second.fetchval(_UPDATE, "a") == 3


async def test_a_locked_row_is_not_changed_before_its_transaction_ends(connect: Open) -> None:
    first, second = await connect(), await connect()
    await first.execute(_INSERT, "a", b"")
    async with first.transaction():
        await first.execute("SELECT FROM schedules WHERE schedule_id = $1 FOR UPDATE", "a")
        waiting = asyncio.create_task(second.fetchval(_UPDATE, "a"))
        assert await first.fetchval(_UPDATE, "a") == 2
    assert await waiting == 3


async def test_a_failed_statement_aborts_its_transaction(connect: Open) -> None:
    connection = await connect()
    await connection.execute(_INSERT, "a", b"")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(_INSERT, "b", b"")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(_INSERT, "a", b"")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await connection.fetchval(_COUNT)
    await transaction.rollback()
    assert await connection.fetchval(_COUNT) == 1


async def test_a_snapshot_does_not_change(connect: Open) -> None:
    reader, writer = await connect(), await connect()
    async with reader.transaction(isolation="repeatable_read", readonly=True):
        assert await reader.fetchval(_COUNT) == 0
        await writer.execute(_INSERT, "a", b"")
        assert await reader.fetchval(_COUNT) == 0
    assert await reader.fetchval(_COUNT) == 1


async def test_listeners_are_notified_at_the_commit_with_the_senders_pid(connect: Open) -> None:
    sender, listener = await connect(), await connect()
    notifications: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    def note(connection: object, pid: int, channel: str, text: str) -> None:
        notifications.put_nowait((pid, text))

    await listener.add_listener("news", note)
    transaction = sender.transaction()
    await transaction.start()
    await sender.execute(_TELL, "news", ["of nothing"])
    await transaction.rollback()
    async with sender.transaction():
        await sender.execute(_TELL, "news", ["a", "b"])
        await listener.fetchval("SELECT 1")
        assert notifications.empty()
    async with asyncio.timeout(WAIT_S):
        assert [await notifications.get(), await notifications.get()] == [
            (sender.get_server_pid(), "a"),
            (sender.get_server_pid(), "b"),
        ]


async def test_an_advisory_lock_is_held_until_its_transaction_ends(connect: Open) -> None:
    first, second = await connect(), await connect()
    async with first.transaction():
        await first.execute(_LOCK, "t")
        with pytest.raises(asyncpg.QueryCanceledError):
            async with second.transaction():
                await second.execute(_LOCK, "t")
    async with second.transaction():
        await second.execute(_LOCK, "t")


async def test_the_transaction_of_a_client_that_leaves_is_rolled_back_and_its_locks_released(connect: Open) -> None:
    first, second = await connect(), await connect()
    await first.execute(_INSERT, "a", b"")
    transaction = first.transaction()
    await transaction.start()
    assert await first.fetchval(_UPDATE, "a") == 2
    first.terminate()
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                assert await second.fetchval(_UPDATE, "a") == 2
                break
            except asyncpg.QueryCanceledError:
                continue  # the server has not noticed yet
