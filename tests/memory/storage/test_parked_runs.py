"""Parked runs: nobody has them, nobody looks for them before they are due, anybody may take them. On both engines."""

from __future__ import annotations

import pytest

from headrace.errors import ChatBusy, InvalidRequest, StaleLease
from services.memory.storage.leases import DUE_MAX
from tests.support.memory.engines import Serve
from tests.support.memory.leases import A, B, Clock, begin, list_run_ids, query
from tests.support.memory.writing import Memory, content, new_id, run_line, step_line

pytestmark = pytest.mark.engines


async def begin_parked(memory: Memory, due_at: int) -> tuple[str, str]:
    request = query(new_id(), A)
    await begin(memory, request)
    await memory.release(request.run_id, 0, due_at)
    return request.chat_id, request.run_id


async def test_a_parked_run_is_listed_when_it_is_due_and_always_with_its_chat(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        _, later = await begin_parked(memory, clock.now_ms + 60_000)
        _, sooner = await begin_parked(memory, clock.now_ms + 20_000)
        await memory.release(sooner, 0, clock.now_ms + 20_000)
        for filters in ({"without_owner": True}, {}):
            assert await list_run_ids(memory, **filters) == []
        assert await list_run_ids(memory, run_id=later) == [later]
        assert await list_run_ids(memory, run_id=later, without_owner=True) == []
        clock.now_ms += 19_999
        assert await list_run_ids(memory, without_owner=True) == []
        clock.now_ms += 1
        assert await list_run_ids(memory, without_owner=True) == await list_run_ids(memory) == [sooner]
    async with serve(clock=clock) as memory:
        assert await list_run_ids(memory) == [sooner], "the service has started again"
        clock.now_ms += 40_000
        [_, run] = await memory.list_unfinished()
        assert {sooner, later} == {*await list_run_ids(memory, without_owner=True)}
        assert run.owner == ""
        assert run.lease_expires_at > 0


async def test_anybody_takes_a_parked_run_before_it_is_due_and_fences_whoever_parked_it(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id, run_id = await begin_parked(memory, clock.now_ms + 60_000)
        with pytest.raises(StaleLease):
            await memory.renew(run_id, 0)
        assert await memory.acquire(chat_id, run_id, B) == 1
        with pytest.raises(StaleLease, match="has an owner"):
            await memory.acquire(chat_id, run_id, A)
        with pytest.raises(StaleLease, match="0 is stale"):
            await memory.append(chat_id, run_id, step_line(content("late")), generation=0)
        await memory.release(run_id, 0, clock.now_ms + 1)
        assert await memory.renew(run_id, 1) == clock.now_ms + 15_000, "a repeated request parks nobody else's run"
        await memory.release(run_id, 1, clock.now_ms + 60_000)
        await memory.append(chat_id, run_id, run_line(), generation=1)
        clock.now_ms += 60_000
        assert await list_run_ids(memory) == []


async def test_a_parked_run_is_still_its_chats_unfinished_one(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id, run_id = await begin_parked(memory, clock.now_ms + 60_000)
        with pytest.raises(ChatBusy) as caught:
            await begin(memory, query(chat_id, A))
        assert caught.value.metadata["runId"] == run_id
        with pytest.raises(InvalidRequest, match="dueAt"):
            await memory.release(run_id, 0, -1)


async def test_what_is_due_is_listed_so_many_at_a_time_those_that_are_due_longest_first(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        parked = [(await begin_parked(memory, clock.now_ms + 1000 - at))[1] for at in range(DUE_MAX + 2)]
        owned = query(new_id(), A)
        await begin(memory, owned)
        clock.now_ms += 1000
        assert {*await list_run_ids(memory)} == {owned.run_id, *parked[2:]}
