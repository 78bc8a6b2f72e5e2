"""Lists and exports stop no run: they may use few connections, and each tenant a share of those."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from headrace.errors import Overloaded, QueueFull, StaleLease
from services.memory.config import Config
from services.memory.data.retention import CleanupClaim, RetentionFile, clean_up
from services.memory.engines import open_engine
from services.memory.storage.work import WAITING_MAX, WORK, Shares, Work
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import CLOCK
from tests.support.memory.clocks import Later
from tests.support.memory.serving import memory_in
from tests.support.postgresql import connected, until_waits

CONNECTIONS_MAX = 10
LISTS_MAX = 3
"""How many of the ten connections lists may use."""


async def test_hanging_lists_do_not_stop_runs(database_url: str) -> None:
    async with memory_in(database_url) as memory, connected(database_url) as connection:
        chat_id, _ = await memory.begin()
        async with connection.transaction():
            await connection.execute("LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE")
            lists = [asyncio.create_task(memory.call("ListSchedules")) for _ in range(40)]
            await until_waits(connection, "relation")
            async with asyncio.timeout(60):
                for _ in range(5):
                    await memory.begin()
                assert (await memory.chat(chat_id=chat_id)).chat_id == chat_id
                outcomes = await asyncio.gather(*lists, return_exceptions=True)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, QueueFull)]
        assert len(refusals) == 39  # one has used the connection for as long as a list may take
        assert all(refusal.retry_after_s for refusal in refusals)
        slow = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
        assert [str(error).partition(" s;")[0] for error in slow] == ["the answer takes more than 5"]
        await memory.call("ListSchedules")


async def test_the_wait_for_a_connection_is_counted_by_kind_of_work(database_url: str) -> None:
    def count() -> float:
        return REGISTRY.get_sample_value("headrace_database_wait_seconds_count", {"work": "list"}) or 0.0

    async with memory_in(database_url) as memory:
        before = count()
        await memory.call("ListSchedules")
        assert count() == before + 1


async def use_one(shares: Shares, tenant: str, leave: asyncio.Event) -> str:
    WORK.set(Work.LIST)
    with acting_as(Identity(tenant, "ada")):
        async with shares.using_one():
            await leave.wait()
    return tenant


async def test_a_tenant_gets_at_most_its_share_of_connections() -> None:
    shares, leave = Shares(CONNECTIONS_MAX, 10.0), asyncio.Event()
    flood = [asyncio.create_task(use_one(shares, "flood", leave)) for _ in range(LISTS_MAX + WAITING_MAX)]
    other = asyncio.create_task(use_one(shares, "calm", leave))
    await asyncio.sleep(0)
    refused, waiting = await asyncio.wait(flood, timeout=0)
    assert [type(task.exception()) for task in refused] == [QueueFull]
    leave.set()
    assert await other == "calm"
    assert await asyncio.gather(*waiting) == ["flood"] * (LISTS_MAX + WAITING_MAX - 1)


@pytest.mark.parametrize("is_late", [False, True], ids=["before a place is free", "in the same turn of the loop"])
async def test_a_caller_that_stops_waiting_leaves_its_place_to_the_next(*, is_late: bool) -> None:
    shares, leave = Shares(CONNECTIONS_MAX, 10.0), asyncio.Event()
    holding = [asyncio.create_task(use_one(shares, "flood", leave)) for _ in range(2)]
    await asyncio.sleep(0)
    cancelled, last = (asyncio.create_task(use_one(shares, "flood", leave)) for _ in range(2))
    await asyncio.sleep(0)
    for act in (leave.set, cancelled.cancel) if is_late else (cancelled.cancel, leave.set):
        act()
    assert await asyncio.gather(*holding, last) == ["flood"] * 3
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    late = asyncio.create_task(use_one(shares, "flood", asyncio.Event()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await late


async def test_runs_never_wait_for_a_share() -> None:
    shares = Shares(CONNECTIONS_MAX, 10.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_use_for_run(shares))


async def _use_for_run(shares: Shares) -> None:
    async with shares.using_one() as timeout_s:
        assert timeout_s is None


async def test_one_service_cleans_up_for_all(database_url: str) -> None:
    """Another one continues the work of a dead service once its claim has expired."""
    async with memory_in(database_url) as memory:
        old = [(await memory.begin_and_end())[0] for _ in range(3)]
    config, retention = Config(database_url=database_url), RetentionFile(None, 7)
    async with open_engine(config) as first, open_engine(config) as second:
        dead = CleanupClaim(first)
        clock = CLOCK.set(Later(8))
        assert await dead.take()
        assert not await clean_up(second, retention, None)
        assert sorted(await second.index.list_chats()) == sorted(old)
        CLOCK.reset(clock)
        clock = CLOCK.set(Later(9))
        assert await clean_up(second, retention, None)
        assert await second.index.list_chats() == []
        assert await CleanupClaim(second).take()
        with pytest.raises(StaleLease):
            await dead.keep()
        CLOCK.reset(clock)
