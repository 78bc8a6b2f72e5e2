"""Each error of the driver becomes a retriable error of ours, which quotes nothing that was to be stored."""

import asyncio
import gc
from collections.abc import Callable
from contextvars import Context
from typing import Any

import asyncpg
import pytest

from headrace.errors import Overloaded
from services.memory.storage.postgres.connection.hosts import split_hosts
from services.memory.storage.postgres.connection.pool import RELEASE_TIMEOUT_S, Limits, database_errors, open_database
from tests.support.memory.engines import drive
from trials.simulation.postgres.driver import DirectWay
from trials.simulation.postgres.server import Server as ModelServer

BASES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
ERRORS = sorted(
    (each for each in vars(asyncpg.exceptions).values() if isinstance(each, type) and issubclass(each, BASES)),
    key=lambda each: each.__name__,
)


def test_every_driver_error_is_translated() -> None:
    assert len(ERRORS) > 200
    for error in (*ERRORS, ConnectionResetError, TimeoutError):
        with pytest.raises(Overloaded) as caught, database_errors():
            raise error("secret")
        assert "secret" not in caught.value.message
        assert caught.value.retriable


class LosingWay(DirectWay):
    """A connection to a database on which nothing arrives any more once `is_lost`."""

    is_lost = False

    def send(self, deliver: Callable[[], None], context: Context, *, is_answer: bool) -> None:
        if not self.is_lost:
            super().send(deliver, context, is_answer=is_answer)


async def test_the_failure_of_a_connection_whose_caller_has_left_is_not_logged(
    modelled: ModelServer,
) -> None:
    """Found by seed 27 of trials/simulation: asyncio logged an exception that was never retrieved."""
    way, contexts, is_done = LosingWay(), list[dict[str, Any]](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    async def lose_database(connection: Any) -> None:
        await connection.execute("BEGIN")  # so that releasing the connection sends a statement
        way.is_lost = True
        is_done.set()

    drive(modelled, way)
    async with open_database("postgresql://modelled", Limits(1, 5.0)) as database:
        calling = asyncio.create_task(database.run(lose_database))
        await is_done.wait()
        calling.cancel()
        await asyncio.wait([calling])
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=RELEASE_TIMEOUT_S * 5)
    del calling, others
    gc.collect()
    assert [context for context in contexts if "exception" in context] == []


async def test_a_call_cancelled_while_the_database_goes_away_is_not_retried(modelled: ModelServer) -> None:
    """Found by seed 9270 of trials/simulation: the error of the rollback replaced the cancellation."""
    has_started = asyncio.Event()

    async def write(connection: Any) -> None:
        async with connection.transaction():
            has_started.set()
            await asyncio.Event().wait()

    drive(modelled)
    async with open_database("postgresql://modelled", Limits(1, 5.0, patience_s=20.0)) as database:
        calling = asyncio.create_task(database.run(write))
        await has_started.wait()
        modelled.crash(asyncpg.ConnectionDoesNotExistError("gone"))
        calling.cancel()
        await asyncio.wait([calling], timeout=10)
        assert calling.cancelled()


async def test_a_service_stopped_while_it_waits_for_a_slow_database_does_not_start(modelled: ModelServer) -> None:
    """Found by seed 13485 of trials/simulation: the service continued to start, and served."""
    is_stalled, stalls = (
        asyncio.Event(),
        iter([0.0]),
    )  # only the first statement, which begins a transaction, is answered

    def stall() -> float:
        if stall_s := next(stalls, 60.0):
            is_stalled.set()
        return stall_s

    async def serve() -> None:
        async with open_database("postgresql://modelled", Limits(1, 0.1)):
            await asyncio.Event().wait()

    drive(modelled)
    modelled.choose_stall_s = stall
    serving = asyncio.create_task(serve())
    await is_stalled.wait()
    serving.cancel()
    await asyncio.wait([serving], timeout=10)
    assert serving.cancelled()


async def test_a_database_that_is_slow_at_first_is_waited_for(modelled: ModelServer) -> None:
    stalls = iter([60.0])
    drive(modelled)
    modelled.choose_stall_s = lambda: next(stalls, 0.0)
    async with open_database("postgresql://modelled", Limits(1, 0.1)) as database:
        assert await database.run(lambda connection: connection.fetchval("SELECT 1")) == 1
    assert next(stalls, None) is None


async def test_releasing_a_connection_sends_no_statement(modelled: ModelServer) -> None:
    queries: list[str] = []

    def note(sent: Any) -> None:
        queries.append(sent.query)

    async def ask(connection: Any) -> None:
        connection.add_query_logger(note)
        await connection.fetchval("SELECT 1")

    drive(modelled)
    async with open_database("postgresql://modelled", Limits(1, 5.0)) as database:
        await database.run(ask)
        assert queries == ["SELECT 1"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/db", ["postgresql://u:p@h/db"]),
        ("postgresql://u:p@h:1,i:2/db?sslmode=require", ["u:p@h:1/db?sslmode=require", "u:p@i:2/db?sslmode=require"]),
        ("postgresql://[::1]:1,[::2]/db", ["[::1]:1/db", "[::2]/db"]),
        ("postgresql://u@/db?host=/a", ["u@/db?host=%2Fa&port="]),
        ("postgresql://u@/db?host=/a,/b", ["u@/db?host=%2Fa&port=", "u@/db?host=%2Fb&port="]),
        ("postgresql://u@/db?host=a,b&port=1,2", ["u@/db?host=a&port=1", "u@/db?host=b&port=2"]),
        ("postgresql://u@/db?host=a,b&port=1", ["u@/db?host=a&port=1", "u@/db?host=b&port=1"]),
    ],
)
def test_each_server_gets_a_url_of_its_own(url: str, expected: list[str]) -> None:
    assert [part.removeprefix("postgresql://") for part in split_hosts(url)] == [
        part.removeprefix("postgresql://") for part in expected
    ]
