"""Forks: copies up to a point, which are then independent."""

import asyncio
from pathlib import Path

import orjson
import pytest

from headrace.errors import LogDamaged, NotFound, OutOfRange
from headrace.v1 import agent_pb2
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Kept, Serve
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, event_line, events, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


async def load_texts(memory: Memory, chat_id: str) -> list[str]:
    _, run_id = await memory.begin("?", chat_id)
    found = (await list_texts(memory, chat_id, run_id))[:-1]
    await memory.append(chat_id, run_id, run_line())
    return found


async def make_three_runs(memory: Memory) -> tuple[str, list[str]]:
    chat_id, runs = new_id(), [new_id() for _ in range(3)]
    for index, run_id in enumerate(runs):
        notice = agent_pb2.RunNotice(run_id=run_id, code="A", message="m")
        answer_step = step_line(content(f"a{index}", events=events(5)))
        await memory.append(chat_id, run_id, query_line(f"q{index}", request_id=f"request {index}"))
        await memory.append(chat_id, run_id, answer_step, event_line(seq=7, timestamp=1, run_notice=notice), run_line())
    return chat_id, runs


async def test_a_fork_is_an_independent_copy(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, runs = await make_three_runs(memory)
        await memory.update_state(chat_id, 0, '{"a":1}')
        copy = await memory.fork(chat_id)
        assert copy != chat_id
        before = await memory.chat(chat_id=chat_id)
        copied_chat = await memory.chat(chat_id=copy)
        assert [event.WhichOneof("payload") for event in copied_chat.events] == [
            event.WhichOneof("payload") for event in before.events
        ]
        copied = [event.run_start.run_id for event in copied_chat.events if event.HasField("run_start")]
        assert len(set(copied)) == 3
        assert not set(copied) & set(runs)
        assert [event.run_notice.run_id for event in copied_chat.events if event.HasField("run_notice")] == copied
        assert (await memory.chat(run_id=copied[1])).chat_id == copy
        assert await memory.state(copy) == (1, '{"a":1}')
        assert await load_texts(memory, copy) == ["q0", "a0", "q1", "a1", "q2", "a2"]
        assert await memory.chat(chat_id=chat_id) == before
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [copy, chat_id]
    async with serve() as memory:
        assert await load_texts(memory, chat_id) == ["q0", "a0", "q1", "a1", "q2", "a2"]


async def test_a_fork_can_end_with_a_run_or_a_line(memory: Memory, kept: Kept) -> None:
    chat_id, runs = await make_three_runs(memory)
    assert await load_texts(memory, await memory.fork(chat_id, run_id=runs[1])) == ["q0", "a0", "q1", "a1"]
    for n in range(1, 13):
        copy = await memory.fork(chat_id, seq=n)
        lines = [orjson.loads(line) for line in (await kept.log(copy)).splitlines()]
        assert [line["_n"] for line in lines] == list(range(1, len(lines) + 1))
        assert len(lines) == (n if n % 4 == 0 else n + 1)
        assert (lines[-1]["_type"], lines[-1]["state"]) == ("run", "completed" if n % 4 == 0 else "cancelled")
        assert {line["chatId"] for line in lines} == {copy}
        assert len(await load_texts(memory, copy)) == (n + 2) // 4 + (n + 3) // 4
    assert await memory.list_unfinished() == []


@pytest.mark.engines("encrypted s3 postgres")
async def test_a_repeated_fork_returns_the_same_copy_with_its_blobs(serve: Serve) -> None:
    request_id = new_id()
    async with serve() as memory:
        chat_id, runs = await make_three_runs(memory)
        blob_id = await memory.put_blob(chat_id, b"picture")
        copies = await asyncio.gather(*(memory.fork(chat_id, request_id=request_id) for _ in range(4)))
        assert len({*copies, await memory.fork(chat_id, request_id=request_id)}) == 1
        assert (await memory.blob(copies[0], blob_id)).data == b"picture"
        others = [
            await memory.fork(chat_id, request_id=new_id()),
            await memory.fork(chat_id, request_id=request_id, run_id=runs[1]),
            await memory.fork(chat_id, request_id=request_id, seq=8),
            await memory.fork(chat_id),
        ]
        assert len({copies[0], *others}) == 5
        assert {chat.chat_id for chat in (await memory.chats()).chats} == {chat_id, copies[0], *others}
        assert await load_texts(memory, copies[0]) == ["q0", "a0", "q1", "a1", "q2", "a2"]
        await memory.delete(chat_id)
    async with serve() as memory:
        assert await memory.fork(chat_id, request_id=request_id) == copies[0]
        await memory.delete(copies[0])
        with pytest.raises(NotFound):
            await memory.fork(chat_id, request_id=request_id)


async def test_a_fork_includes_reverts(memory: Memory) -> None:
    chat_id, _ = await make_three_runs(memory)
    await memory.revert(chat_id, 2)
    assert await load_texts(memory, await memory.fork(chat_id)) == ["q0", "a0"]
    assert await load_texts(memory, await memory.fork(chat_id, seq=12)) == ["q0", "a0", "q1", "a1", "q2", "a2"]


async def test_an_impossible_fork_is_refused(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, _ = await make_three_runs(memory)
        for fields in ({"seq": 0}, {"seq": 13}):
            with pytest.raises(OutOfRange):
                await memory.fork(chat_id, **fields)
        with pytest.raises(NotFound):
            await memory.fork(chat_id, run_id=new_id())
        with pytest.raises(NotFound):
            await memory.fork(new_id())
    path = folder / f"{chat_id}.json"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    async with serve() as memory:
        with pytest.raises(LogDamaged):
            await memory.fork(chat_id)
