"""A primary dies, its standby takes its place: what was acknowledged is there, nothing is built on what was not."""

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
from tests.support.memory.acknowledged import Acknowledged, note_some, note_the_rest, start
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Tables
from tests.support.memory.messages import user
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import new_id, step_line, store_fact

OWNER = Identity("t", "u")
CHATS = 2


@pytest.fixture(scope="module")
def both() -> Generator[Pair]:
    with pair() as made:
        made.follow()
        yield made


def fail_over(both: Pair) -> None:
    both.primary.kill()
    both.promote()
    both.follow()


@pytest.mark.nightly
async def test_the_log_goes_on_at_the_standby(both: Pair) -> None:
    chat_ids, told = [new_id() for _ in range(CHATS)], Acknowledged()
    async with asyncio.timeout(900):
        writer = await start(both.url(), "0", chat_ids)
        await note_some(writer, told)
        await asyncio.to_thread(fail_over, both)
        await note_the_rest(writer, told)
        for chat_id in chat_ids:
            told.check(chat_id, await Tables(both.url()).log(chat_id))
    assert len(told.spans) == CHATS * 32


async def test_nothing_goes_behind_a_line_that_was_seen_and_is_gone(both: Pair) -> None:
    async with asyncio.timeout(900), memory_in(both.url(), patience_s=0.1) as memory, memory_in(both.url()) as other:
        chat_id, run_id = await memory.begin("hello")
        await asyncio.to_thread(both.standby.kill)
        appending = asyncio.create_task(memory.append(chat_id, run_id, step_line(user("refused"))))
        await asyncio.sleep(0.5)
        # It is on the primary's disk, whose standby has not heard of it; after its restart everybody sees it.
        await asyncio.to_thread(both.primary.kill)
        with pytest.raises(Overloaded):
            await appending
        await asyncio.to_thread(both.primary.start)
        assert len(await other.context(chat_id, run_id)) == 2
        await asyncio.to_thread(both.primary.kill)
        await asyncio.to_thread(both.standby.start)
        await asyncio.to_thread(both.promote)
        await asyncio.to_thread(both.follow)
        assert (await other.append(chat_id, run_id, step_line(user("second")))).first_n == 2
        log = await Tables(both.url()).log(chat_id)
        assert [line.split(b'"_n":')[1].split(b",")[0] for line in log.splitlines()] == [b"1", b"2"]
        assert await list_texts(other, chat_id, run_id) == ["hello", "second"]


async def test_what_no_standby_has_is_not_acknowledged(both: Pair) -> None:
    async with asyncio.timeout(600), open_postgres(both.url(), Limits(2, 1.0, patience_s=0.5)) as engine:
        await store_fact(engine, OWNER, "kept", new_id())
        await asyncio.to_thread(both.standby.kill)
        request_id = new_id()
        with pytest.raises(Overloaded):
            await store_fact(engine, OWNER, "later", request_id)
        await asyncio.to_thread(both.standby.start)
        await asyncio.to_thread(both.wait)
        fact_id = await store_fact(engine, OWNER, "later", request_id)
        assert fact_id in {fact.uuid for fact in await engine.records.facts.list_all()}


@pytest.mark.nightly
async def test_a_primary_that_says_nothing_any_more_is_left(both: Pair) -> None:
    async with asyncio.timeout(600), AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        links = {}
        for name, target in zip(("a", "b"), both.ways, strict=True):
            (folder / name).mkdir()
            links[target] = await stack.enter_async_context(link(folder / name / SOCKET, target / SOCKET))
        url = f"postgresql://headrace@/postgres?host={folder / 'a'},{folder / 'b'}"
        engine = await stack.enter_async_context(open_postgres(url, Limits(4, 30.0, patience_s=15.0)))
        await asyncio.gather(*(store_fact(engine, OWNER, "before", new_id()) for _ in range(8)))
        links[both.primary.folder].cut()
        waiting = [asyncio.create_task(store_fact(engine, OWNER, "after", new_id())) for _ in range(8)]
        await asyncio.to_thread(fail_over, both)
        told = await asyncio.gather(*waiting)
        assert set(told) <= {fact.uuid for fact in await engine.records.facts.list_all()}
