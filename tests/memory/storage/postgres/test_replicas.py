"""Several services over one database: all show what one has acknowledged, and none overwrites the writes of others.

They do not notify each other here: correctness may not depend on it.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from headrace.errors import ChatBusy, NotFound, Overloaded, StaleLease
from headrace.v1 import memory_pb2
from tests.support.memory.acknowledged import Acknowledged
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Tables
from tests.support.memory.messages import content, user
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line
from tests.support.postgresql import connected

A, B = "127.0.0.1:7001", "127.0.0.1:7011"


@pytest.fixture
async def replicas(request: pytest.FixtureRequest, database_url: str) -> AsyncGenerator[list[Memory]]:
    """Three services; a test may set the default isolation of the database."""
    name = urlsplit(database_url).path[1:]
    async with AsyncExitStack() as stack:
        async with connected(database_url) as connection:
            isolation = getattr(request, "param", "read committed")
            await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
        yield [await stack.enter_async_context(memory_in(database_url, tells=False)) for _ in range(3)]


async def test_a_line_acknowledged_by_one_service_is_shown_by_all(replicas: list[Memory]) -> None:
    first, second, third = replicas
    chat_id, run_id = await first.begin("hello")
    expected = ["hello"]
    for turn in range(12):
        for memory in (first, second):
            assert (await memory.append(chat_id, run_id, step_line(user(f"{turn}")))).first_n == len(expected) + 1
            expected.append(f"{turn}")
            assert await list_texts(first, chat_id, run_id) == await list_texts(second, chat_id, run_id) == expected
    assert await list_texts(third, chat_id, run_id) == expected
    await third.append(chat_id, run_id, run_line())
    for memory in replicas:
        assert await memory.list_unfinished() == []
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id]
        with pytest.raises(StaleLease, match="has ended"):
            await memory.append(chat_id, run_id, step_line(user("late")))


@pytest.mark.parametrize("replicas", ["read committed", "repeatable read", "serializable"], indirect=True)
async def test_lines_written_by_all_services_have_consecutive_numbers(
    replicas: list[Memory], database_url: str
) -> None:
    chats = [await replicas[0].begin(str(index)) for index in range(4)]

    async def write(memory: Memory, chat: tuple[str, str]) -> list[memory_pb2.AppendResponse]:
        return [await memory.append(*chat, step_line(user("a")), step_line(user("b"))) for _ in range(8)]

    async with asyncio.timeout(300):
        writers = [write(memory, chat) for memory in replicas for chat in chats for _ in range(2)]
        replies = [reply for of_writer in await asyncio.gather(*writers) for reply in of_writer]
    assert sorted(reply.first_n for reply in replies) == sorted(list(range(2, 98, 2)) * 4)
    views = [[await list_texts(memory, *chat) for chat in chats] for memory in replicas]
    assert views[0] == views[1] == views[2]
    log = await Tables(database_url).log(chats[0][0])
    assert Acknowledged().check(chats[0][0], log) == len(log)
    assert log.count(b"\n") == 97


async def test_an_append_repeated_at_other_services_adds_nothing(replicas: list[Memory]) -> None:
    chat_id, run_id = await replicas[0].begin("hello")
    for memory in replicas:
        await memory.context(chat_id, run_id)
    for request_id in (new_id() for _ in range(10)):
        async with asyncio.timeout(100):
            sent = [memory.append(chat_id, run_id, step_line(user("x")), request_id=request_id) for memory in replicas]
            first, *others = await asyncio.gather(*sent)
        assert others == [first, first]
    assert len(await list_texts(replicas[0], chat_id, run_id)) == 11


async def test_queries_repeated_at_the_same_moment_start_one_run(replicas: list[Memory]) -> None:
    for _ in range(10):
        chat_id = new_id()
        async with asyncio.timeout(100):
            appends = [memory.append(chat_id, new_id(), query_line(request_id="mine")) for memory in replicas]
            replies = await asyncio.gather(*appends)
        assert len([reply for reply in replies if reply.first_n == 1 and reply.chat_created]) == 1
        assert len({reply.duplicate_run_id for reply in replies if reply.duplicate_run_id}) == 1


async def test_a_new_owner_at_another_service_fences_the_old_one_at_once(replicas: list[Memory]) -> None:
    first, second, _ = replicas
    for _ in range(10):
        chat_id, run_id = await first.begin("hello")
        assert await first.acquire(chat_id, run_id, A) == 1
        await first.append(chat_id, run_id, step_line(user("mine")), generation=1)
        with pytest.raises(StaleLease, match="has an owner"):
            await second.acquire(chat_id, run_id, B)
        assert await second.acquire(chat_id, run_id, A) == 2
        with pytest.raises(StaleLease, match="generation 2; 1 is stale"):
            await first.append(chat_id, run_id, step_line(user("late")), generation=1)
        with pytest.raises(StaleLease, match="was lost"):
            await first.renew(run_id, 1)
        assert await first.renew(run_id, 2)
        assert len(await list_texts(first, chat_id, run_id)) == 2


async def test_nothing_of_an_earlier_owner_is_committed_after_a_later_one_has_the_run(replicas: list[Memory]) -> None:
    first, second, third = replicas
    async with asyncio.timeout(300):
        for _ in range(20):
            chat_id, run_id = await first.begin("hello")
            late = [asyncio.create_task(first.append(chat_id, run_id, step_line(user("late")))) for _ in range(5)]
            await asyncio.sleep(random.random() / 500)
            await second.acquire(chat_id, run_id, A)
            texts = await list_texts(third, chat_id, run_id)
            outcomes = await asyncio.gather(*late, return_exceptions=True)
            assert await list_texts(third, chat_id, run_id) == texts
            assert len(texts) == 1 + sum(not isinstance(outcome, StaleLease) for outcome in outcomes)


async def test_only_one_of_several_simultaneous_owners_gets_the_run(replicas: list[Memory]) -> None:
    for _ in range(10):
        chat_id, run_id = await replicas[0].begin("hello")
        wanting = (memory.acquire(chat_id, run_id, f"a:{index}") for index, memory in enumerate(replicas))
        outcomes = await asyncio.gather(*wanting, return_exceptions=True)
        assert [outcome for outcome in outcomes if not isinstance(outcome, StaleLease)] == [1]


async def test_only_one_of_several_simultaneous_state_updates_succeeds(replicas: list[Memory]) -> None:
    chat_id, _ = await replicas[0].begin()
    for version in range(10):
        updates = (memory.update_state(chat_id, version, f'{{"n":{index}}}') for index, memory in enumerate(replicas))
        outcomes = await asyncio.gather(*updates, return_exceptions=True)
        assert [outcome for outcome in outcomes if not isinstance(outcome, StaleLease)] == [version + 1]
        states = [await memory.state(chat_id) for memory in replicas]
        assert states[0] == states[1] == states[2]


async def test_a_run_belongs_to_the_chat_that_had_it_first(replicas: list[Memory]) -> None:
    for _ in range(10):
        run_id, chats = new_id(), [new_id() for _ in replicas]
        appends = (memory.append(chat, run_id, query_line()) for memory, chat in zip(replicas, chats, strict=True))
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        (owner,) = (chat for chat, outcome in zip(chats, outcomes, strict=True) if not isinstance(outcome, Exception))
        assert all(isinstance(outcome, memory_pb2.AppendResponse | NotFound | Overloaded) for outcome in outcomes)
        assert (await replicas[0].chat(run_id=run_id)).chat_id == owner


async def test_a_chat_deleted_and_recreated_elsewhere_is_read_anew(replicas: list[Memory]) -> None:
    first, second, _ = replicas
    chat_id, _ = await first.begin_and_end("first")
    await second.chat(chat_id=chat_id)
    await first.delete(chat_id)
    with pytest.raises(NotFound):
        await second.chat(chat_id=chat_id)
    with pytest.raises(NotFound):
        await second.append(chat_id, new_id(), step_line(user("late")))
    _, run_id = await first.begin("second", chat_id)
    assert await list_texts(second, chat_id, run_id) == ["second"]
    assert (await second.append(chat_id, run_id, step_line(user("a")), run_line())).first_n == 2
    await first.delete(chat_id)
    _, run_id = await first.begin("third", chat_id)
    await first.append(chat_id, run_id, *(step_line(user(str(index))) for index in range(5)))
    assert await list_texts(second, chat_id, run_id) == ["third", "0", "1", "2", "3", "4"]


async def test_concurrent_writes_reverts_and_deletions_leave_a_consistent_chat(
    replicas: list[Memory], database_url: str
) -> None:
    """Services disturb each other; a call may be refused, but whatever was acknowledged is there, once."""
    chat_id = new_id()

    async def one_run(memory: Memory, name: str) -> None:
        run_id, lines = new_id(), [query_line(name), *(step_line(content(f"{name}.{index}")) for index in range(3))]
        for line in [*lines, run_line()]:
            try:
                await memory.append(chat_id, run_id, line)
            except (StaleLease, NotFound):
                return  # deleted meanwhile

    async def disturb(memory: Memory) -> None:
        for _ in range(6):
            await asyncio.sleep(random.random() / 50)
            try:
                await (memory.delete(chat_id) if random.random() < 0.5 else memory.revert(chat_id, 1))
            except (NotFound, ChatBusy, StaleLease):
                continue

    async with asyncio.timeout(600):
        runs = (one_run(memory, f"{index}-{turn}") for index, memory in enumerate(replicas) for turn in range(6))
        outcomes = await asyncio.gather(*runs, *map(disturb, replicas), return_exceptions=True)
        assert [outcome for outcome in outcomes if isinstance(outcome, BaseException)] == []
        await replicas[0].begin_and_end("the last", chat_id)
    views = [await memory.chat(chat_id=chat_id, include_raw_messages=True) for memory in replicas]
    async with memory_in(database_url) as fresh:
        assert [await fresh.chat(chat_id=chat_id, include_raw_messages=True)] * 3 == views
        assert await fresh.list_unfinished() == []
    log = await Tables(database_url).log(chat_id)
    assert Acknowledged().check(chat_id, log) == len(log)


async def test_a_compaction_by_another_service_is_noticed(replicas: list[Memory]) -> None:
    first, second, _ = replicas
    chat_id, run_id = await first.begin("go")
    await first.append(chat_id, run_id, *(step_line(content("word " * 200, msg_id=new_id())) for _ in range(20)))
    before = await list_texts(second, chat_id, run_id)
    request = memory_pb2.CompactRequest(chat_id=chat_id, run_id=run_id, trigger="manual")
    request.limits.model, request.limits.context_window_tokens = "gpt-4o", 100_000
    kinds = [str(delta.WhichOneof("delta")) async for delta in first.stub.Compact(request)]
    assert kinds[-1] == "fallback"
    assert await list_texts(second, chat_id, run_id) == await list_texts(first, chat_id, run_id) != before
