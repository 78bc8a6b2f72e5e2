"""A chat's runs are one owner's: its log takes no query whose owner lacks one of them. And who has which run."""

from __future__ import annotations

import pytest

from headrace.errors import ChatBusy
from tests.support.memory.engines import Serve
from tests.support.memory.leases import A, B, Clock, begin, list_run_ids, query
from tests.support.memory.writing import Memory, new_id, run_line

pytestmark = pytest.mark.engines


async def test_a_query_is_refused_beside_a_run_that_its_owner_has_not(memory: Memory) -> None:
    chat_id = new_id()
    first, second = query(chat_id, A), query(chat_id, A)
    await begin(memory, first)
    second.beside.append(first.run_id)
    await begin(memory, second)
    for beside in ((), (first.run_id,)):
        with pytest.raises(ChatBusy) as caught:
            await begin(memory, query(chat_id, B, *beside))
        assert caught.value.metadata["runId"] == (second if beside else first).run_id
    for run in (first, second):
        await memory.append(chat_id, run.run_id, run_line())
    await begin(memory, query(chat_id, B))


async def test_a_repeated_query_is_answered_wherever_its_run_is(memory: Memory) -> None:
    chat_id = new_id()
    first = query(chat_id, A, request_id="once")
    answer = await begin(memory, first)
    assert await begin(memory, first) == answer
    assert (await begin(memory, query(chat_id, B, request_id="once"))).duplicate_run_id == first.run_id


async def test_a_run_is_listed_with_those_of_its_chat_and_by_whether_it_has_an_owner(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id = new_id()
        first, other = query(chat_id, A), query(new_id(), B)
        second = query(chat_id, A, first.run_id)
        for request in (first, other, second):
            await begin(memory, request)
        assert await list_run_ids(memory, run_id=second.run_id) == [first.run_id, second.run_id]
        assert await list_run_ids(memory, run_id=new_id()) == []
        assert await list_run_ids(memory, without_owner=True) == []
        await memory.release(second.run_id, 0)
        assert await list_run_ids(memory, without_owner=True) == [second.run_id]
        clock.now_ms += 15_000
        assert await list_run_ids(memory, without_owner=True) == await list_run_ids(memory)
        assert len(await list_run_ids(memory)) == 3
