"""Leases: one owner at a time by the clock, and fencing of all former owners of the run.

The runs of a chat belong to one owner: its log accepts no query whose owner lacks one of them. Parked runs have no
owner: they are not listed before they are due, and anybody may take them.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.errors import ChatBusy, InvalidRequest, NotFound, StaleLease
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from services.memory.storage.leases import DUE_MAX
from tests.support.memory.engines import Serve
from tests.support.memory.held_sync import HeldSync
from tests.support.memory.messages import content
from tests.support.memory.schedules import START, Clock
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


@pytest.fixture
async def memory(serve: Serve, clock: Clock) -> AsyncGenerator[Memory]:
    async with serve(clock=clock) as memory:
        yield memory


@pytest.mark.engines("postgres")
async def test_a_run_has_one_owner_until_its_lease_ends(memory: Memory, clock: Clock) -> None:
    chat_id, run_id = await memory.begin()
    assert await memory.acquire(chat_id, run_id, A) == 1
    with pytest.raises(StaleLease, match="has an owner"):
        await memory.acquire(chat_id, run_id, B)
    clock.now += 14_000
    assert await memory.renew(run_id, 1) == clock.now + 15_000
    clock.now += 14_000
    with pytest.raises(StaleLease):
        await memory.acquire(chat_id, run_id, B)
    clock.now += 1_000
    assert await memory.acquire(chat_id, run_id, B) == 2
    with pytest.raises(StaleLease, match="was lost"):
        await memory.renew(run_id, 1)


async def test_a_run_can_start_with_its_owners_lease(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        chat_id, run_id, refused = new_id(), new_id(), new_id()
        request = memory_pb2.AppendRequest(
            chat_id=chat_id, run_id=run_id, request_id=new_id(), lines=[query_line()], owner=A, ttl_ms=15_000
        )
        await memory.stub.Append(request)
        with pytest.raises(StaleLease, match="has an owner"):
            await memory.acquire(chat_id, run_id, B)
        clock.now += 5_000
        assert await memory.renew(run_id, 0) == clock.now + 15_000
        request.request_id, request.run_id, request.ttl_ms = new_id(), refused, -1
        with pytest.raises(InvalidRequest), rpc_errors():
            await memory.stub.Append(request)
    async with serve(clock=clock) as memory:
        [run] = await memory.list_unfinished()
        assert (run.owner, run.generation, run.lease_expires_at) == (A, 0, clock.now + 15_000)
        clock.now += 15_000
        assert await memory.acquire(chat_id, run_id, B) == 1


async def test_a_new_owner_fences_the_former_one_before_writing(memory: Memory) -> None:
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


async def test_unfinished_runs_name_their_owner(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        chat_id, run_id = await memory.begin()
        await memory.acquire(chat_id, run_id, A)
        before = await memory.list_unfinished()
        assert [(run.owner, run.lease_expires_at, run.generation) for run in before] == [(A, START + 15_000, 1)]
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


async def test_after_the_loss_of_the_index_no_generation_is_used_twice(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        generations = [await memory.acquire(chat_id, run_id, A)]
    for _ in range(2):
        os.unlink(folder / "index.sqlite")
        async with serve() as memory:
            generations += [await memory.acquire(chat_id, run_id, A) for _ in range(2)]
    assert generations == sorted(set(generations))


async def test_an_ended_or_unknown_run_cannot_be_acquired_or_renewed(memory: Memory) -> None:
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


async def test_an_owner_renews_its_leases_in_one_call_and_learns_which_were_lost(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        kept, taken, ended, given_up = [await memory.begin() for _ in range(4)]
        for run in (kept, taken, ended, given_up):
            assert await memory.acquire(*run, A) == 1
        clock.now += 1_000
        await memory.acquire(*taken, A)
        await memory.append(*ended, run_line(), generation=1)
        await memory.release(given_up[1], 1)
        missing = new_id()
        held = [memory_pb2.HeldLease(run_id=run[1], generation=1) for run in (taken, kept, ended, given_up)]
        held.append(memory_pb2.HeldLease(run_id=missing, generation=1))
        response = await memory.call("RenewLeases", leases=held, ttl_ms=20_000)
        assert response.expires_at == clock.now + 20_000
        assert {*response.lost_run_ids} == {taken[1], ended[1], given_up[1], missing}
    async with serve(clock=clock) as memory:
        ends = {run.run_id: run.lease_expires_at for run in await memory.list_unfinished()}
        assert ends == {kept[1]: clock.now + 20_000, taken[1]: clock.now + 15_000, given_up[1]: 0}
        with pytest.raises(InvalidRequest):
            await memory.call("RenewLeases", leases=held, ttl_ms=0)


@pytest.mark.parametrize("ttl_ms", [0, -1, 600_001])
async def test_the_length_of_a_lease_is_bounded(memory: Memory, ttl_ms: int) -> None:
    chat_id, run_id = await memory.begin()
    with pytest.raises(InvalidRequest):
        await memory.acquire(chat_id, run_id, A, ttl_ms)


async def test_successful_calls_of_services_are_logged_at_debug_level(serve: Serve) -> None:
    with capture_logs() as logs:
        async with serve() as memory:
            await memory.begin()
            await memory.list_unfinished()
            with pytest.raises(NotFound):
                await memory.append(new_id(), new_id(), run_line(), generation=1)
    rpc_lines = [line for line in logs if line["event"] == "rpc done"]
    levels = {(line["method"].rpartition("/")[2], line["code"]): line["log_level"] for line in rpc_lines}
    assert levels == {("Append", "OK"): "debug", ("ListUnfinishedRuns", "OK"): "debug", ("Append", "NOT_FOUND"): "info"}


@pytest.mark.engines("postgres")
async def test_a_query_is_refused_if_its_owner_lacks_another_run_of_the_chat(memory: Memory) -> None:
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


async def test_a_repeated_query_returns_its_run_to_any_owner(memory: Memory) -> None:
    chat_id = new_id()
    first = query(chat_id, A, request_id="once")
    answer = await begin(memory, first)
    assert await begin(memory, first) == answer
    assert (await begin(memory, query(chat_id, B, request_id="once"))).duplicate_run_id == first.run_id


async def test_runs_are_listed_by_chat_and_by_whether_they_have_an_owner(memory: Memory, clock: Clock) -> None:
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
    clock.now += 15_000
    assert await list_run_ids(memory, without_owner=True) == await list_run_ids(memory)
    assert len(await list_run_ids(memory)) == 3


async def begin_parked(memory: Memory, due_at: int) -> tuple[str, str]:
    request = query(new_id(), A)
    await begin(memory, request)
    await memory.release(request.run_id, 0, due_at)
    return request.chat_id, request.run_id


@pytest.mark.engines("postgres")
async def test_a_parked_run_is_listed_once_it_is_due_and_always_with_its_chat(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        _, later = await begin_parked(memory, clock.now + 60_000)
        _, sooner = await begin_parked(memory, clock.now + 20_000)
        await memory.release(sooner, 0, clock.now + 20_000)
        for filters in ({"without_owner": True}, {}):
            assert await list_run_ids(memory, **filters) == []
        assert await list_run_ids(memory, run_id=later) == [later]
        assert await list_run_ids(memory, run_id=later, without_owner=True) == []
        clock.now += 19_999
        assert await list_run_ids(memory, without_owner=True) == []
        clock.now += 1
        assert await list_run_ids(memory, without_owner=True) == await list_run_ids(memory) == [sooner]
    async with serve(clock=clock) as memory:
        assert await list_run_ids(memory) == [sooner], "the service has started again"
        clock.now += 40_000
        [_, run] = await memory.list_unfinished()
        assert {sooner, later} == {*await list_run_ids(memory, without_owner=True)}
        assert run.owner == ""
        assert run.lease_expires_at > 0


async def test_anybody_can_take_a_parked_run_before_it_is_due_and_fence_its_former_owner(
    memory: Memory, clock: Clock
) -> None:
    chat_id, run_id = await begin_parked(memory, clock.now + 60_000)
    with pytest.raises(StaleLease):
        await memory.renew(run_id, 0)
    assert await memory.acquire(chat_id, run_id, B) == 1
    with pytest.raises(StaleLease, match="has an owner"):
        await memory.acquire(chat_id, run_id, A)
    with pytest.raises(StaleLease, match="0 is stale"):
        await memory.append(chat_id, run_id, step_line(content("late")), generation=0)
    await memory.release(run_id, 0, clock.now + 1)
    assert await memory.renew(run_id, 1) == clock.now + 15_000, "a repeated request parks nobody else's run"
    await memory.release(run_id, 1, clock.now + 60_000)
    await memory.append(chat_id, run_id, run_line(), generation=1)
    clock.now += 60_000
    assert await list_run_ids(memory) == []


async def test_a_parked_run_is_still_an_unfinished_run_of_its_chat(memory: Memory, clock: Clock) -> None:
    chat_id, run_id = await begin_parked(memory, clock.now + 60_000)
    with pytest.raises(ChatBusy) as caught:
        await begin(memory, query(chat_id, A))
    assert caught.value.metadata["runId"] == run_id
    with pytest.raises(InvalidRequest, match="dueAt"):
        await memory.release(run_id, 0, -1)


async def test_due_runs_are_listed_in_batches_longest_due_first(memory: Memory, clock: Clock) -> None:
    parked = [(await begin_parked(memory, clock.now + 1000 - offset))[1] for offset in range(DUE_MAX + 2)]
    owned = query(new_id(), A)
    await begin(memory, owned)
    clock.now += 1000
    assert {*await list_run_ids(memory)} == {owned.run_id, *parked[2:]}


A, B = "127.0.0.1:7001", "127.0.0.1:7011"


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


async def list_run_ids(memory: Memory, **fields: object) -> list[str]:
    return [run.run_id for run in (await memory.call("ListUnfinishedRuns", **fields)).runs]
