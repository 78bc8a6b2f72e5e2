"""Places for tenants' runs: how many there are, in which order tenants get them, and how waiting ends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from headrace.errors import Overloaded, QueueFull
from services.orchestrator.lifecycle.admission.fair_use import BEGINNING_MAX, FairUse, NoLimits
from services.runtime.auth.identity import DEFAULT
from services.runtime.capacity import RETRY_AFTER_S


@asynccontextmanager
async def within(seconds: float = 50.0) -> AsyncGenerator[asyncio.TaskGroup]:
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
        yield group


@asynccontextmanager
async def taking_turn(fair: FairUse, tenant: str) -> AsyncGenerator[None]:
    await fair.wait_for_turn(tenant)
    try:
        yield
    finally:
        fair.end_turn(tenant)


async def start_run(fair: FairUse, tenant: str, started: list[str], name: str = "") -> None:
    """Start a run that keeps its place."""
    async with taking_turn(fair, tenant):
        started.append(name or tenant)
        fair.take(tenant)


async def let_tasks_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_returned_place_goes_to_the_tenants_next_run() -> None:
    fair, started = FairUse(2, 10), list[str]()
    async with within() as group:
        for number in range(4):
            group.create_task(start_run(fair, "a", started, str(number)))
        await let_tasks_run()
        assert started == ["0", "1"]
        fair.give_back("a")
        await let_tasks_run()
        assert started == ["0", "1", "2"]
        fair.give_back("a")


async def test_tenants_take_turns() -> None:
    fair, started, hold = FairUse(100, 100), list[str](), asyncio.Event()

    async def slowly(tenant: str) -> None:
        async with taking_turn(fair, tenant):
            started.append(tenant)
            await hold.wait()

    async with within() as group:
        for tenant in "a" * 20 + "b" * 3 + "c":
            group.create_task(slowly(tenant))
        await let_tasks_run()
        assert started == ["a"] * BEGINNING_MAX + ["b", "c"], "each tenant may start one, however many others wait"
        hold.set()
    assert "".join(started[BEGINNING_MAX + 2 :]) == "abab" + "a" * 14


async def test_a_tenant_at_its_limit_does_not_block_others() -> None:
    fair, started = FairUse(1, 10), list[str]()
    async with within() as group:
        waiting = [group.create_task(start_run(fair, "a", started)) for _ in range(3)]
        await let_tasks_run()
        await start_run(fair, "b", started)
        assert started == ["a", "b"]
        for task in waiting[1:]:
            task.cancel()


async def test_a_run_beyond_the_queue_limit_is_refused_with_a_retry_time() -> None:
    fair, started = FairUse(1, 2), list[str]()
    async with within() as group:
        waiting = [group.create_task(start_run(fair, "a", started)) for _ in range(3)]
        await let_tasks_run()
        with pytest.raises(QueueFull) as caught:
            await start_run(fair, "a", started)
        assert caught.value.retry_after_s == RETRY_AFTER_S
        for task in waiting:
            task.cancel()


async def test_waiting_for_a_place_ends_after_a_timeout() -> None:
    fair = FairUse(1, 2, wait_s=0.02)
    fair.take("a")
    with pytest.raises(QueueFull, match=r"within 0\.02 s"):
        async with taking_turn(fair, "a"):
            raise AssertionError("there is no place")
    fair.give_back("a")
    async with taking_turn(fair, "a"):
        pass


async def test_a_cancelled_waiter_returns_its_place() -> None:
    fair, started = FairUse(1, 10), list[str]()
    async with within() as group:
        await start_run(fair, "a", started)
        leaving, staying = (group.create_task(start_run(fair, "a", started, name)) for name in ("leaves", "stays"))
        await let_tasks_run()
        fair.give_back("a")
        leaving.cancel()  # It has been admitted, and its task has not run yet.
        await let_tasks_run()
        assert started == ["a", "stays"]
        assert staying.done()
    fair.give_back("a")
    async with asyncio.timeout(50), taking_turn(fair, "a"):
        pass


async def test_a_stopping_process_refuses_the_waiting_runs() -> None:
    fair = FairUse(1, 10)
    fair.take("a")
    waiting = asyncio.create_task(start_run(fair, "a", []))
    await let_tasks_run()
    fair.close(Overloaded("stopping"))
    with pytest.raises(Overloaded, match="stopping"):
        await asyncio.wait_for(waiting, 50)


async def test_waiting_runs_are_counted_by_tenant() -> None:
    def waiting() -> float | None:
        return REGISTRY.get_sample_value("headrace_tenant_queue_length", {"tenant": DEFAULT.tenant})

    fair, started = FairUse(1, 10), list[str]()
    async with within() as group:
        for _ in range(3):
            group.create_task(start_run(fair, DEFAULT.tenant, started))
        await let_tasks_run()
        assert (len(started), waiting()) == (1, 2)
        for _ in range(2):
            fair.give_back(DEFAULT.tenant)
            await let_tasks_run()
    assert (len(started), waiting()) == (3, 0)


async def test_without_limits_no_run_waits() -> None:
    fair, started = NoLimits(), list[str]()
    async with within():
        for _ in range(10):
            await start_run(fair, "a", started)
        fair.give_back("a")
    assert len(started) == 10


async def test_with_an_empty_queue_runs_start_only_while_there_is_a_place() -> None:
    fair, started = FairUse(1, 0), list[str]()
    await start_run(fair, "a", started)
    for _ in range(2):
        with pytest.raises(QueueFull, match="0 runs of the tenant wait"):
            await start_run(fair, "a", started)
    fair.give_back("a")
    await start_run(fair, "a", started, "later")
    assert started == ["a", "later"]
