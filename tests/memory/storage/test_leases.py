"""Leases: one owner at a time by the clock, and a fence for all who owned the run before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.errors import InvalidRequest, NotFound, StaleLease
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from tests.support.memory.engines import Serve
from tests.support.memory.held_sync import HeldSync
from tests.support.memory.leases import A, B, Clock
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, content, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


async def test_a_run_has_one_owner_until_its_lease_ends(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id, run_id = await memory.begin()
        assert await memory.acquire(chat_id, run_id, A) == 1
        with pytest.raises(StaleLease, match="has an owner"):
            await memory.acquire(chat_id, run_id, B)
        clock.now_ms += 14_000
        assert await memory.renew(run_id, 1) == clock.now_ms + 15_000
        clock.now_ms += 14_000
        with pytest.raises(StaleLease):
            await memory.acquire(chat_id, run_id, B)
        clock.now_ms += 1_000
        assert await memory.acquire(chat_id, run_id, B) == 2
        with pytest.raises(StaleLease, match="was lost"):
            await memory.renew(run_id, 1)


async def test_a_run_may_begin_with_its_owners_lease(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id, run_id, refused = new_id(), new_id(), new_id()
        request = memory_pb2.AppendRequest(
            chat_id=chat_id, run_id=run_id, request_id=new_id(), lines=[query_line()], owner=A, ttl_ms=15_000
        )
        await memory.stub.Append(request)
        with pytest.raises(StaleLease, match="has an owner"):
            await memory.acquire(chat_id, run_id, B)
        clock.now_ms += 5_000
        assert await memory.renew(run_id, 0) == clock.now_ms + 15_000
        request.request_id, request.run_id, request.ttl_ms = new_id(), refused, -1
        with pytest.raises(InvalidRequest), rpc_errors():
            await memory.stub.Append(request)
    async with serve(clock=clock) as memory:
        [run] = await memory.list_unfinished()
        assert (run.owner, run.generation, run.lease_expires_at) == (A, 0, clock.now_ms + 15_000)
        clock.now_ms += 15_000
        assert await memory.acquire(chat_id, run_id, B) == 1


async def test_a_later_owner_fences_the_earlier_one_before_it_has_written(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    assert await memory.acquire(chat_id, run_id, A) == 1
    await memory.append(chat_id, run_id, step_line(content("a")), generation=1)
    assert await memory.acquire(chat_id, run_id, A) == 2, "a process that starts again at the same address"
    with pytest.raises(StaleLease, match="generation 2; 1 is stale"):
        await memory.append(chat_id, run_id, step_line(content("b")), generation=1)
    await memory.append(chat_id, run_id, step_line(content("c")), generation=2)


async def test_nothing_of_an_earlier_owner_is_committed_after_a_later_one_has_the_run(folder: Path) -> None:
    sync = HeldSync()
    async with asyncio.timeout(200), memory_over(folder, sync=sync) as memory:
        chat_id, run_id = await memory.begin()
        sync.hold()
        late = asyncio.create_task(memory.append(chat_id, run_id, step_line(content("late"))))
        await asyncio.to_thread(sync.reached.wait, 10)
        acquiring = asyncio.create_task(memory.acquire(chat_id, run_id, A))
        done, _ = await asyncio.wait([acquiring], timeout=0.2)
        assert not done, "the append is still on its way to the disk"
        sync.go_on.set()
        assert await acquiring == 1
        assert len(await memory.context(chat_id, run_id)) == 2
        await late


async def test_unfinished_runs_name_their_owner(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        chat_id, run_id = await memory.begin()
        await memory.acquire(chat_id, run_id, A)
        before = await memory.list_unfinished()
        assert [(run.owner, run.lease_expires_at, run.generation) for run in before] == [(A, 1_015_000, 1)]
    async with serve(clock=clock) as memory:
        assert await memory.list_unfinished() == before
        with pytest.raises(StaleLease):
            await memory.acquire(chat_id, run_id, B)
        await memory.release(run_id, 1)
        await memory.release(run_id, 1)
        assert [(run.owner, run.lease_expires_at) for run in await memory.list_unfinished()] == [(A, 0)]
        with pytest.raises(StaleLease):
            await memory.renew(run_id, 1)
        assert await memory.acquire(chat_id, run_id, B) == 2


async def test_a_lost_index_gives_no_generation_twice(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        generations = [await memory.acquire(chat_id, run_id, A)]
    for _ in range(2):
        os.unlink(folder / "index.sqlite")
        async with serve() as memory:
            generations += [await memory.acquire(chat_id, run_id, A) for _ in range(2)]
    assert generations == sorted(set(generations))


async def test_what_has_ended_or_never_was_has_no_owner(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    with pytest.raises(NotFound):
        await memory.acquire(chat_id, new_id(), A)
    with pytest.raises(NotFound):
        await memory.acquire(new_id(), run_id, A)
    with pytest.raises(StaleLease):
        await memory.renew(run_id, 0)
    await memory.release(new_id(), 1)
    await memory.acquire(chat_id, run_id, A)
    await memory.append(chat_id, run_id, run_line(), generation=1)
    with pytest.raises(StaleLease, match="has ended"):
        await memory.acquire(chat_id, run_id, A)
    with pytest.raises(StaleLease):
        await memory.renew(run_id, 1)


async def test_an_owner_renews_its_leases_at_once_and_is_told_which_were_lost(serve: Serve) -> None:
    clock = Clock()
    async with serve(clock=clock) as memory:
        kept, taken, ended, given_up = [await memory.begin() for _ in range(4)]
        for run in (kept, taken, ended, given_up):
            assert await memory.acquire(*run, A) == 1
        clock.now_ms += 1_000
        await memory.acquire(*taken, A)
        await memory.append(*ended, run_line(), generation=1)
        await memory.release(given_up[1], 1)
        missing = new_id()
        held = [memory_pb2.HeldLease(run_id=run[1], generation=1) for run in (taken, kept, ended, given_up)]
        held.append(memory_pb2.HeldLease(run_id=missing, generation=1))
        response = await memory.stub.RenewLeases(memory_pb2.RenewLeasesRequest(leases=held, ttl_ms=20_000))
        assert response.expires_at == clock.now_ms + 20_000
        assert {*response.lost_run_ids} == {taken[1], ended[1], given_up[1], missing}
    async with serve(clock=clock) as memory:
        ends = {run.run_id: run.lease_expires_at for run in await memory.list_unfinished()}
        assert ends == {kept[1]: clock.now_ms + 20_000, taken[1]: clock.now_ms + 15_000, given_up[1]: 0}
        with pytest.raises(InvalidRequest), rpc_errors():
            await memory.stub.RenewLeases(memory_pb2.RenewLeasesRequest(leases=held, ttl_ms=0))


@pytest.mark.parametrize("ttl_ms", [0, -1, 600_001])
async def test_a_lease_has_a_length(memory: Memory, ttl_ms: int) -> None:
    chat_id, run_id = await memory.begin()
    with pytest.raises(InvalidRequest):
        await memory.acquire(chat_id, run_id, A, ttl_ms)


async def test_what_services_ask_is_no_line_of_the_log_unless_it_fails(serve: Serve) -> None:
    with capture_logs() as said:
        async with serve() as memory:
            await memory.begin()
            await memory.list_unfinished()
            with pytest.raises(NotFound):
                await memory.append(new_id(), new_id(), run_line(), generation=1)
    done = [line for line in said if line["event"] == "rpc done"]
    levels = {(line["method"].rpartition("/")[2], line["code"]): line["log_level"] for line in done}
    assert levels == {
        ("Append", "OK"): "debug",
        ("ListUnfinishedRuns", "OK"): "debug",
        ("Append", "NOT_FOUND"): "info",
    }
