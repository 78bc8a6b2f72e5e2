"""A database that restarts, is killed or cannot be reached: calls wait for it, and nothing is lost or done twice."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from benchmarks.postgresql import Server, running
from headrace.errors import DiskFull, Overloaded, Unauthenticated
from services.memory.storage.postgres.connection.pool import RETRY_AFTER_S, Limits
from services.memory.storage.postgres.engine import open_postgres
from services.runtime.clock import now_ms
from tests.support.memory.acknowledged import (
    Acknowledged,
    kill_at_random,
    note_first_lines,
    note_remaining_lines,
    start,
)
from tests.support.memory.crashing import write
from tests.support.memory.engines import Tables
from tests.support.memory.messages import content, user
from tests.support.memory.serving import memory_in
from tests.support.memory.wire import Wire, wire
from tests.support.memory.writing import new_id, query_line, run_line, step_line

CHATS = 2


@pytest.fixture(scope="module")
def killable_server() -> Generator[Server]:
    """A PostgreSQL that may be killed: it syncs what it acknowledges."""
    with running() as server:
        yield server


@pytest.fixture
def wire_folder() -> Generator[Path]:
    """The folder of the wire that the service connects to; the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        yield Path(name)


@pytest.fixture
async def cable(wire_folder: Path, postgres: Server) -> AsyncGenerator[Wire]:
    async with wire(wire_folder, postgres.folder) as cable_wire:
        yield cable_wire


@pytest.fixture
def wired_url(wire_folder: Path, postgres: Server, database_url: str) -> str:
    """The database, reached through the wire."""
    return database_url.replace(str(postgres.folder), str(wire_folder))


async def test_calls_wait_for_a_database_that_restarts(killable_server: Server) -> None:
    async with asyncio.timeout(600), memory_in(killable_server.url()) as memory:
        chat_id, run_id = await memory.begin("hello")
        other = await memory.begin("other")
        killable_server.stop()
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(memory.append(chat_id, run_id, step_line(user("a")))),
            asyncio.create_task(memory.context(chat_id, run_id)),
            asyncio.create_task(memory.chats()),
            asyncio.create_task(memory.acquire(*other, "a:1")),
        ]
        done, _ = await asyncio.wait(waiting, timeout=0.5)
        assert not done
        await asyncio.to_thread(killable_server.start)
        await asyncio.gather(*waiting)
        assert len(await memory.context(chat_id, run_id)) == 2
        await memory.append(chat_id, run_id, run_line())
        await memory.append(*other, run_line(), generation=1)


@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.nightly), True])
async def test_the_log_continues_after_the_database_is_stopped_or_killed(
    killable_server: Server, is_killed: bool
) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    async with asyncio.timeout(900), memory_in(killable_server.url()) as memory:
        for turn in map(str, range(2)):
            writer = await start(killable_server.url(), turn, chat_ids)
            await note_first_lines(writer, acknowledged)
            await asyncio.to_thread(killable_server.kill if is_killed else killable_server.stop)
            await asyncio.to_thread(killable_server.start)
            await note_remaining_lines(writer, acknowledged)
            for chat_id in chat_ids:
                acknowledged.check(chat_id, await Tables(killable_server.url()).log(chat_id))
            assert await memory.list_unfinished() == []
        assert len(acknowledged.spans) == CHATS * 2 * 32
        await asyncio.gather(*map(memory.delete, chat_ids))


@pytest.mark.nightly
async def test_after_every_kill_of_the_service_the_log_continues_where_it_was(database_url: str) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    for turn in map(str, range(3)):
        writer = await start(database_url, turn, chat_ids)
        await kill_at_random(writer, acknowledged)
        async with asyncio.timeout(600), memory_in(database_url) as memory:
            for chat_id in chat_ids:
                acknowledged.check(chat_id, await Tables(database_url).log(chat_id))
                await write(memory, chat_id, turn)
                acknowledged.check(chat_id, await Tables(database_url).log(chat_id))
            assert await memory.list_unfinished() == []


async def test_an_append_whose_reply_is_lost_is_stored_once(cable: Wire, wired_url: str, database_url: str) -> None:
    async with asyncio.timeout(300), memory_in(wired_url) as memory:
        chat_id, run_id = new_id(), new_id()
        cable.swallows = b"COMMIT"
        first = await memory.append(chat_id, run_id, query_line("hello"))
        assert (first.first_n, first.last_n, first.chat_created) == (1, 1, True)
        assert not cable.swallows, "it was lost"
        cable.swallows = b"the second"
        second = await memory.append(chat_id, run_id, step_line(user("the second")), step_line(user("b")))
        assert (second.first_n, second.last_n) == (2, 3)
        assert not cable.swallows, "it was lost"
        assert len(await memory.context(chat_id, run_id)) == 3
    acknowledged = Acknowledged()
    assert acknowledged.check(chat_id, log := await Tables(database_url).log(chat_id)) == len(log)


async def test_a_database_that_stays_away_refuses_with_a_retriable_error(cable: Wire, wired_url: str) -> None:
    async with asyncio.timeout(300), memory_in(wired_url, patience_s=0.5) as memory:
        chat_id, run_id = await memory.begin("hello")
        cable.cut()
        request_id = new_id()
        refused = [
            memory.append(chat_id, run_id, step_line(user("a")), request_id=request_id),
            memory.context(chat_id, run_id),
            memory.blob(chat_id, "0" * 64),
            memory.search("hello"),
            memory.renew(run_id, 0),
        ]
        for outcome in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(outcome, Overloaded)
            assert (outcome.retriable, outcome.retry_after_s) == (True, RETRY_AFTER_S)
        cable.mend()
        assert (await memory.append(chat_id, run_id, step_line(user("a")), request_id=request_id)).first_n == 2
        assert len(await memory.context(chat_id, run_id)) == 2


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refusal BEFORE INSERT ON lines EXECUTE FUNCTION refuse();
"""


async def test_a_database_without_room_refuses_at_once_as_disk_full(database_url: str) -> None:
    async with asyncio.timeout(300), memory_in(database_url, patience_s=3600) as memory:
        chat_id, run_id = await memory.begin("hello")
        connection = await asyncpg.connect(database_url)
        await connection.execute(REFUSE)
        try:
            with pytest.raises(DiskFull):
                await memory.append(chat_id, run_id, step_line(user("a")))
            assert len(await memory.context(chat_id, run_id)) == 1
        finally:
            await connection.execute("DROP FUNCTION refuse CASCADE")
            await connection.close()
        assert (await memory.append(chat_id, run_id, step_line(user("a")))).first_n == 2


async def test_lines_are_stored_even_if_the_caller_leaves(cable: Wire, wired_url: str) -> None:
    async with asyncio.timeout(300), memory_in(wired_url) as memory:
        chat_id, run_id = await memory.begin("hello")
        cable.cut()
        leaving = asyncio.create_task(memory.append(chat_id, run_id, step_line(content("kept"))))
        done, _ = await asyncio.wait([leaving], timeout=0.3)
        assert not done
        leaving.cancel()
        await asyncio.wait([leaving])
        cable.mend()
        assert (await memory.append(chat_id, run_id, step_line(user("b")))).first_n == 3


async def test_a_malformed_or_stale_post_is_rejected_without_the_database(cable: Wire, wired_url: str) -> None:
    now_s = now_ms() // 1000
    right = {"webhook_id": "e1", "timestamp": str(now_s), "signature": "v1,AAAA", "payload": b"{}"}
    wrong = [{"timestamp": str(now_s - 3600)}, {"timestamp": "x"}, {"webhook_id": ""}, {"signature": "AAAA"}]
    async with asyncio.timeout(300), memory_in(wired_url, patience_s=0.5) as memory:
        cable.cut()
        for fields in wrong:
            with pytest.raises(Unauthenticated):
                await memory.call_as(None, "ReceiveWebhook", schedule_id=new_id(), **right | fields)
        with pytest.raises(Overloaded):
            await memory.call_as(None, "ReceiveWebhook", schedule_id=new_id(), **right)


async def test_a_service_starts_before_its_database(cable: Wire, wired_url: str) -> None:
    cable.cut()
    asyncio.get_running_loop().call_later(0.5, cable.mend)
    async with asyncio.timeout(300), memory_in(wired_url) as memory:
        await memory.begin("hello")


def read_up_metric() -> float | None:
    return REGISTRY.get_sample_value("headrace_database_up")


async def test_an_outage_is_reported_while_it_lasts_and_logged_once(postgres: Server, database_url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-") as wire_path, capture_logs() as logs:
        url = database_url.replace(str(postgres.folder), wire_path)
        async with (
            asyncio.timeout(300),
            wire(Path(wire_path), postgres.folder) as cable,
            open_postgres(url, Limits(4, 5)) as engine,
        ):
            assert (engine.is_up(), read_up_metric()) == (True, 1)
            cable.cut()
            waiting = [asyncio.create_task(engine.index.list_chats()) for _ in range(8)]
            done, _ = await asyncio.wait(waiting, timeout=1.0)
            assert not done
            assert (engine.is_up(), read_up_metric()) == (False, 0)
            cable.mend()
            await asyncio.gather(*waiting)
            assert (engine.is_up(), read_up_metric()) == (True, 1)
    events = [line["event"] for line in logs]
    assert (events.count("database away"), events.count("database back")) == (1, 1)
