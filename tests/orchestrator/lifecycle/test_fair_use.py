"""Places for tenants' runs: how many, in whose turn, and what becomes of those who wait."""

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


async def begin(fair: FairUse, tenant: str, begun: list[str], name: str = "") -> None:
    """Begin a run that goes on."""
    async with taking_turn(fair, tenant):
        begun.append(name or tenant)
        fair.take(tenant)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_tenant_has_so_many_places_and_the_next_comes_when_one_is_given_back() -> None:
    fair, begun = FairUse(2, 10), list[str]()
    async with within() as group:
        for number in range(4):
            group.create_task(begin(fair, "a", begun, str(number)))
        await settled()
        assert begun == ["0", "1"]
        fair.give_back("a")
        await settled()
        assert begun == ["0", "1", "2"]
        fair.give_back("a")


async def test_turns_go_round_the_tenants() -> None:
    fair, begun, hold = FairUse(100, 100), list[str](), asyncio.Event()

    async def slowly(tenant: str) -> None:
        async with taking_turn(fair, tenant):
            begun.append(tenant)
            await hold.wait()

    async with within() as group:
        for tenant in "a" * 20 + "b" * 3 + "c":
            group.create_task(slowly(tenant))
        await settled()
        assert begun == ["a"] * BEGINNING_MAX + ["b", "c"], "each tenant may begin one, whatever the others wait for"
        hold.set()
    assert "".join(begun[BEGINNING_MAX + 2 :]) == "abab" + "a" * 14


async def test_a_tenant_at_its_limit_holds_nobody_up() -> None:
    fair, begun = FairUse(1, 10), list[str]()
    async with within() as group:
        waiting = [group.create_task(begin(fair, "a", begun)) for _ in range(3)]
        await settled()
        await begin(fair, "b", begun)
        assert begun == ["a", "b"]
        for task in waiting[1:]:
            task.cancel()


async def test_too_many_who_wait_are_refused_at_once_and_told_when_to_come_back() -> None:
    fair, begun = FairUse(1, 2), list[str]()
    async with within() as group:
        waiting = [group.create_task(begin(fair, "a", begun)) for _ in range(3)]
        await settled()
        with pytest.raises(QueueFull) as caught:
            await begin(fair, "a", begun)
        assert caught.value.retry_after_s == RETRY_AFTER_S
        for task in waiting:
            task.cancel()


async def test_nobody_waits_for_ever() -> None:
    fair = FairUse(1, 2, wait_s=0.02)
    fair.take("a")
    with pytest.raises(QueueFull, match=r"within 0\.02 s"):
        async with taking_turn(fair, "a"):
            raise AssertionError("there is no place")
    fair.give_back("a")
    async with taking_turn(fair, "a"):
        pass


async def test_who_leaves_while_waiting_takes_no_place_with_them() -> None:
    fair, begun = FairUse(1, 10), list[str]()
    async with within() as group:
        await begin(fair, "a", begun)
        leaving, staying = (group.create_task(begin(fair, "a", begun, name)) for name in ("leaves", "stays"))
        await settled()
        fair.give_back("a")
        leaving.cancel()  # it has been let in, and does not know yet
        await settled()
        assert begun == ["a", "stays"]
        assert staying.done()
    fair.give_back("a")
    async with asyncio.timeout(50), taking_turn(fair, "a"):
        pass


async def test_a_stopping_process_lets_those_who_wait_go() -> None:
    fair = FairUse(1, 10)
    fair.take("a")
    waiting = asyncio.create_task(begin(fair, "a", []))
    await settled()
    fair.close(Overloaded("stopping"))
    with pytest.raises(Overloaded, match="stopping"):
        await asyncio.wait_for(waiting, 50)


async def test_those_who_wait_are_counted_by_tenant() -> None:
    def waiting() -> float | None:
        return REGISTRY.get_sample_value("headrace_tenant_queue_length", {"tenant": DEFAULT.tenant})

    fair, begun = FairUse(1, 10), list[str]()
    async with within() as group:
        for _ in range(3):
            group.create_task(begin(fair, DEFAULT.tenant, begun))
        await settled()
        assert (len(begun), waiting()) == (1, 2)
        for _ in range(2):
            fair.give_back(DEFAULT.tenant)
            await settled()
    assert (len(begun), waiting()) == (3, 0)


async def test_where_there_is_one_tenant_nobody_waits() -> None:
    fair, begun = NoLimits(), list[str]()
    async with within():
        for _ in range(10):
            await begin(fair, "a", begun)
        fair.give_back("a")
    assert len(begun) == 10


async def test_where_none_may_wait_those_begin_for_whom_there_is_a_place() -> None:
    fair, begun = FairUse(1, 0), list[str]()
    await begin(fair, "a", begun)
    for _ in range(2):
        with pytest.raises(QueueFull, match="0 runs of the tenant wait"):
            await begin(fair, "a", begun)
    fair.give_back("a")
    await begin(fair, "a", begun, "later")
    assert begun == ["a", "later"]
