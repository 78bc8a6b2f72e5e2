"""PostgreSQL and its model in simulated worlds answer the same where transactions meet."""

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
"""After which a statement that waits is given up."""

WAIT_S = 60.0

_INSERT = "INSERT INTO schedules VALUES ($1, 't', 'u', 0, 0, 1, $2)"
_UPDATE = "UPDATE schedules SET version = version + 1 WHERE schedule_id = $1 RETURNING version"
_COUNT = "SELECT count(*) FROM schedules"
_TELL = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('budgets of ' || $1, 0))"


@pytest.fixture(params=["database_url", "modelled"])
def database(request: pytest.FixtureRequest) -> str | ModelServer:
    """An empty one: an address, or a model."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def connect(database: str | ModelServer) -> AsyncGenerator[Open]:
    """Open connections to a database with the store's tables, and nothing in them."""
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


async def test_nobody_sees_what_is_not_committed(connect: Open) -> None:
    one, other = await connect(), await connect()
    async with one.transaction():
        await one.execute(_INSERT, "a", b"")
        assert (await one.fetchval(_COUNT), await other.fetchval(_COUNT)) == (1, 0)
    assert await other.fetchval(_COUNT) == 1


async def test_a_row_has_one_writer_at_a_time_and_who_waits_is_given_up(connect: Open) -> None:
    one, other = await connect(), await connect()
    await one.execute(_INSERT, "a", b"")
    async with one.transaction():
        assert await one.fetchval(_UPDATE, "a") == 2
        with pytest.raises(asyncpg.QueryCanceledError):
            await other.fetchval(_UPDATE, "a")
    assert await other.fetchval(_UPDATE, "a") == 3


async def test_a_row_that_is_locked_is_not_changed_before_its_transaction_ends(connect: Open) -> None:
    one, other = await connect(), await connect()
    await one.execute(_INSERT, "a", b"")
    async with one.transaction():
        await one.execute("SELECT FROM schedules WHERE schedule_id = $1 FOR UPDATE", "a")
        waiting = asyncio.create_task(other.fetchval(_UPDATE, "a"))
        assert await one.fetchval(_UPDATE, "a") == 2
    assert await waiting == 3


async def test_what_fails_takes_its_transaction_along(connect: Open) -> None:
    one = await connect()
    await one.execute(_INSERT, "a", b"")
    transaction = one.transaction()
    await transaction.start()
    await one.execute(_INSERT, "b", b"")
    with pytest.raises(asyncpg.UniqueViolationError):
        await one.execute(_INSERT, "a", b"")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await one.fetchval(_COUNT)
    await transaction.rollback()
    assert await one.fetchval(_COUNT) == 1


async def test_a_snapshot_stays_as_it_was(connect: Open) -> None:
    one, other = await connect(), await connect()
    async with one.transaction(isolation="repeatable_read", readonly=True):
        assert await one.fetchval(_COUNT) == 0
        await other.execute(_INSERT, "a", b"")
        assert await one.fetchval(_COUNT) == 0
    assert await one.fetchval(_COUNT) == 1


async def test_who_listens_is_told_at_the_commit_and_by_whom(connect: Open) -> None:
    one, other = await connect(), await connect()
    told: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    def note(connection: object, pid: int, channel: str, text: str) -> None:
        told.put_nowait((pid, text))

    await other.add_listener("news", note)
    transaction = one.transaction()
    await transaction.start()
    await one.execute(_TELL, "news", ["of nothing"])
    await transaction.rollback()
    async with one.transaction():
        await one.execute(_TELL, "news", ["a", "b"])
        await other.fetchval("SELECT 1")
        assert told.empty()
    async with asyncio.timeout(WAIT_S):
        assert [await told.get(), await told.get()] == [(one.get_server_pid(), "a"), (one.get_server_pid(), "b")]


async def test_an_advisory_lock_is_held_to_the_end_of_its_transaction(connect: Open) -> None:
    one, other = await connect(), await connect()
    async with one.transaction():
        await one.execute(_LOCK, "t")
        with pytest.raises(asyncpg.QueryCanceledError):
            async with other.transaction():
                await other.execute(_LOCK, "t")
    async with other.transaction():
        await other.execute(_LOCK, "t")


async def test_what_a_client_leaves_is_rolled_back_and_lets_go(connect: Open) -> None:
    one, other = await connect(), await connect()
    await one.execute(_INSERT, "a", b"")
    transaction = one.transaction()
    await transaction.start()
    assert await one.fetchval(_UPDATE, "a") == 2
    one.terminate()
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                assert await other.fetchval(_UPDATE, "a") == 2
                break
            except asyncpg.QueryCanceledError:
                continue  # the server has not noticed yet
