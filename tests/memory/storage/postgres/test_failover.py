"""A primary dies and its standby takes over: what was acknowledged is there, and nothing follows a line that was
lost."""

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.errors import Overloaded
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.runtime.auth.identity import Identity
from tests.support.cluster.links import link
from tests.support.cluster.pair import SOCKET, Pair, pair
from tests.support.memory.acknowledged import Acknowledged, note_first_lines, note_remaining_lines, start
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Tables
from tests.support.memory.messages import user
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import new_id, step_line, store_fact

OWNER = Identity("t", "u")
CHATS = 2


@pytest.fixture(scope="module")
def servers() -> Generator[Pair]:
    with pair() as running_pair:
        running_pair.follow()
        yield running_pair


def fail_over(servers: Pair) -> None:
    servers.primary.kill()
    servers.promote()
    servers.follow()


@pytest.mark.nightly
async def test_the_log_continues_on_the_standby(servers: Pair) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    async with asyncio.timeout(900):
        writer = await start(servers.url(), "0", chat_ids)
        await note_first_lines(writer, acknowledged)
        await asyncio.to_thread(fail_over, servers)
        await note_remaining_lines(writer, acknowledged)
        for chat_id in chat_ids:
            acknowledged.check(chat_id, await Tables(servers.url()).log(chat_id))
    assert len(acknowledged.spans) == CHATS * 32


async def test_a_line_that_was_read_but_lost_in_a_failover_leaves_no_gap(servers: Pair) -> None:
    async with (
        asyncio.timeout(900),
        memory_in(servers.url(), patience_s=0.1) as memory,
        memory_in(servers.url()) as other,
    ):
        chat_id, run_id = await memory.begin("hello")
        await asyncio.to_thread(servers.standby.kill)
        appending = asyncio.create_task(memory.append(chat_id, run_id, step_line(user("refused"))))
        await asyncio.sleep(0.5)
        # It is on the primary's disk, but its standby does not have it; after a restart of the primary all can read it.
        await asyncio.to_thread(servers.primary.kill)
        with pytest.raises(Overloaded):
            await appending
        await asyncio.to_thread(servers.primary.start)
        assert len(await other.context(chat_id, run_id)) == 2
        await asyncio.to_thread(servers.primary.kill)
        await asyncio.to_thread(servers.standby.start)
        await asyncio.to_thread(servers.promote)
        await asyncio.to_thread(servers.follow)
        assert (await other.append(chat_id, run_id, step_line(user("second")))).first_n == 2
        log = await Tables(servers.url()).log(chat_id)
        assert [line.split(b'"_n":')[1].split(b",")[0] for line in log.splitlines()] == [b"1", b"2"]
        assert await list_texts(other, chat_id, run_id) == ["hello", "second"]


async def test_a_write_that_no_standby_has_is_not_acknowledged(servers: Pair) -> None:
    async with asyncio.timeout(600), open_postgres(servers.url(), Limits(2, 1.0, patience_s=0.5)) as engine:
        await store_fact(engine, OWNER, "kept", new_id())
        await asyncio.to_thread(servers.standby.kill)
        request_id = new_id()
        with pytest.raises(Overloaded):
            await store_fact(engine, OWNER, "later", request_id)
        await asyncio.to_thread(servers.standby.start)
        await asyncio.to_thread(servers.wait)
        fact_id = await store_fact(engine, OWNER, "later", request_id)
        assert fact_id in {fact.uuid for fact in await engine.records.facts.list_all()}


@pytest.mark.nightly
async def test_a_silent_primary_is_given_up(servers: Pair) -> None:
    async with asyncio.timeout(600), AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        links = {}
        for name, target in zip(("a", "b"), servers.ways, strict=True):
            (folder / name).mkdir()
            links[target] = await stack.enter_async_context(link(folder / name / SOCKET, target / SOCKET))
        url = f"postgresql://headrace@/postgres?host={folder / 'a'},{folder / 'b'}"
        engine = await stack.enter_async_context(open_postgres(url, Limits(4, 30.0, patience_s=15.0)))
        await asyncio.gather(*(store_fact(engine, OWNER, "before", new_id()) for _ in range(8)))
        links[servers.primary.folder].cut()
        waiting = [asyncio.create_task(store_fact(engine, OWNER, "after", new_id())) for _ in range(8)]
        await asyncio.to_thread(fail_over, servers)
        fact_ids = await asyncio.gather(*waiting)
        assert set(fact_ids) <= {fact.uuid for fact in await engine.records.facts.list_all()}
