"""A chat's runs are one owner's: its log takes no query whose owner lacks one of them. And who has which run."""

from __future__ import annotations

import pytest

from headrace.errors import ChatBusy
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from tests.memory.storage.test_leases import A, B, Clock
from tests.support.memory.engines import Serve
from tests.support.memory.writing import Memory, new_id, query_line, run_line

pytestmark = pytest.mark.engines


def query(chat_id: str, owner: str, *beside: str, request_id: str = "") -> memory_pb2.AppendRequest:
    return memory_pb2.AppendRequest(
        chat_id=chat_id,
        run_id=new_id(),
        request_id=new_id(),
        lines=[query_line(request_id=request_id)],
        owner=owner,
        ttl_ms=15_000,
        beside=beside,
    )


async def begin(memory: Memory, request: memory_pb2.AppendRequest) -> memory_pb2.AppendResponse:
    with rpc_errors():
        return await memory.stub.Append(request)


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


async def list_run_ids(memory: Memory, **fields: object) -> list[str]:
    request = memory_pb2.ListUnfinishedRunsRequest(**fields)  # pyright: ignore[reportArgumentType] - each is of its field
    return [run.run_id for run in (await memory.stub.ListUnfinishedRuns(request)).runs]
