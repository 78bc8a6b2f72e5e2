"""Tenants' turns at one account: the tenant with the smallest share is next, and a recent caller finds a held place."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import QueueFull
from services.llm_gateway.limits.quota import WAITING_MAX, Account
from services.llm_gateway.providers.provider_file import Quota
from tests.support.timing import within

TURNS = 5
"""Turns of the loop after which whoever may go has gone."""


class Caller:
    """Calls an account; each admitted call runs until it is ended."""

    def __init__(self, quota: Quota, *, held_s: float = 1000) -> None:
        self.account = Account("p", quota, held_s=held_s)
        self.admitted: list[str] = []
        self.running: Counter[str] = Counter()
        self._ends: list[tuple[str, asyncio.Event]] = []
        self._calls: set[asyncio.Task[None]] = set()

    def call(self, tenant: str, tokens: int = 1) -> None:
        task = asyncio.create_task(self._call(tenant, tokens))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, tenant: str, tokens: int) -> None:
        async with self.account.admitting(tokens, math.inf, lambda: tokens, tenant=tenant):
            self.admitted.append(tenant)
            self.running[tenant] += 1
            end = asyncio.Event()
            self._ends.append((tenant, end))
            await end.wait()
            self.running[tenant] -= 1

    def end(self, tenant: str = "") -> None:
        """End the oldest running call, of the tenant if one is named."""
        at = next(at for at, (name, _) in enumerate(self._ends) if tenant in ("", name))
        self._ends.pop(at)[1].set()

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def cancel_calls(self) -> None:
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)


@asynccontextmanager
async def calling(held_s: float = 1000, **limits: object) -> AsyncGenerator[Caller]:
    caller = Caller(Quota.model_validate(limits), held_s=held_s)
    try:
        yield caller
    finally:
        await caller.cancel_calls()


async def test_the_next_free_place_goes_to_a_new_tenant_whatever_the_queue() -> None:
    async with calling(concurrency=2) as caller:
        for _ in range(60):
            caller.call("a")
        await caller.settle()
        caller.call("b")
        await caller.settle()
        caller.end("a")
        await caller.settle()
        assert caller.admitted == ["a", "a", "b"]


async def test_a_place_is_held_for_a_tenant_that_called_recently() -> None:
    async with calling(concurrency=2) as caller:
        caller.call("b")
        for _ in range(60):
            caller.call("a")
        await caller.settle()
        assert caller.running == {"a": 1, "b": 1}
        caller.end("b")
        await caller.settle()
        assert caller.running["a"] == 1
        caller.call("b")
        await caller.settle()
        assert caller.running == {"a": 1, "b": 1}


async def test_a_held_place_is_released_after_its_hold_time() -> None:
    async with calling(held_s=0.05, concurrency=2) as caller:
        caller.call("b")
        for _ in range(3):
            caller.call("a")
        await caller.settle()
        caller.end("b")
        async with within(5):
            while caller.running["a"] < 2:
                await asyncio.sleep(0.01)


async def test_at_most_half_of_the_places_are_held() -> None:
    async with calling(concurrency=4) as caller:
        for tenant in "bcdefg":
            caller.call(tenant)
            await caller.settle()
            caller.end(tenant)
            await caller.settle()
        for _ in range(10):
            caller.call("a")
        await caller.settle()
        assert caller.running["a"] == 2


async def test_a_single_place_is_never_held() -> None:
    async with calling(concurrency=1) as caller:
        caller.call("b")
        await caller.settle()
        caller.call("a")
        caller.end("b")
        await caller.settle()
        assert caller.running["a"] == 1


@pytest.mark.parametrize("places", [1, 8])
async def test_a_weight_of_three_gets_three_times_as_much(places: int) -> None:
    async with calling(concurrency=places, weights={"a": 3}) as caller:
        for tenant in "ba":
            for _ in range(50):
                caller.call(tenant)
        await caller.settle()
        while len(caller.admitted) < 48:
            caller.end()
            await caller.settle()
        assert Counter(caller.admitted[8:]) == {"a": 30, "b": 10}


async def test_scarce_tokens_decide_the_next_tenant() -> None:
    async with calling(tokensPerMinute=1000) as caller:
        caller.call("a", tokens=900)
        await caller.settle()
        caller.call("a", tokens=500)
        caller.call("b", tokens=100)
        await caller.settle()
        assert caller.admitted == ["a", "b"]


async def test_one_tenants_full_queue_does_not_refuse_others() -> None:
    async with calling(concurrency=1) as caller:
        for _ in range(WAITING_MAX + 1):
            caller.call("a")
        await caller.settle()
        with pytest.raises(QueueFull):
            async with caller.account.admitting(1, math.inf, lambda: 1, tenant="a"):
                pass
        caller.call("b")
        await caller.settle()
        caller.end("a")
        await caller.settle()
        assert caller.running["b"] == 1


@given(
    places=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from(("call", "end")), st.sampled_from("abcd")), max_size=60),
)
def test_no_place_stays_free_unless_it_is_held(places: int, steps: list[tuple[str, str]]) -> None:
    asyncio.run(play(places, steps))


async def play(places: int, steps: list[tuple[str, str]]) -> None:
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(calling(concurrency=places))
        called, ended = Counter[str](), set[str]()
        for action, tenant in steps:
            if action == "call":
                caller.call(tenant)
                called[tenant] += 1
            elif caller.running[tenant]:
                caller.end(tenant)
                ended.add(tenant)
            await caller.settle()
            admitted = Counter(caller.admitted)
            waiting = [name for name in called if called[name] > admitted[name]]
            free = places - caller.running.total()
            held = min(sum(not caller.running[name] for name in ended), places // 2)
            assert free >= 0
            assert caller.account.waiting == called.total() - admitted.total()
            if waiting and free:
                assert all(caller.running[name] for name in waiting)
                assert free <= held
