"""Reservations and spending of random trees of calls at random prices."""

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BudgetExceeded
from headrace.v1 import common_pb2
from services.orchestrator.agents.definition import parse_agent
from services.orchestrator.money.charges import Origin
from services.orchestrator.money.spending import Spending
from services.orchestrator.peers.models import CallNeeds
from services.runtime.usage import Rates

ORIGIN = Origin("a", "p/m")


@dataclass(frozen=True)
class Work:
    """A call and its real cost, as a share of its input and of the output that it was allowed."""

    needs: CallNeeds
    share: float
    turns: int
    """How often the call lets other tasks run before it ends."""

    is_cancelled: bool


@st.composite
def works(draw: st.DrawFn) -> Work:
    output_max = draw(st.integers(1, 128_000))
    rates = Rates(draw(st.floats(0, 100)), draw(st.floats(0, 500)))
    needs = CallNeeds("p/m", draw(st.integers(0, 200_000)), draw(st.integers(1, output_max)), output_max, rates)
    return Work(needs, draw(st.floats(0, 1)), draw(st.integers(0, 5)), draw(st.booleans()))


def make_spending(max_cost_usd: float, **budget: Any) -> Spending:
    limits = {"maxCostUsd": max_cost_usd, "maxModelCalls": 10_000} | budget
    agent = {"mode": "ONESHOT", "modelConfig": {"providerKey": "p", "model": "m"}, "plain": {}, "budget": limits}
    return Spending(parse_agent(json.dumps(agent).encode(), "a"))


def run_together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)

    asyncio.run(run())


async def ask(spending: Spending, work: Work) -> None:
    async with spending.model_call(work.needs) as reservation:
        for _ in range(work.turns):
            await asyncio.sleep(0)
        rates, allowed = work.needs.rates, reservation.output_tokens_max
        assert rates is not None
        assert allowed is not None
        assert allowed <= work.needs.output_tokens_max
        output_tokens = 0 if work.is_cancelled else int(allowed * work.share)
        input_tokens = int(work.needs.input_tokens * work.share)
        cost_usd = rates.count_cost(input_tokens, output_tokens)
        spending.settle(common_pb2.Usage(output_tokens=output_tokens, cost_usd=cost_usd), ORIGIN, reservation)


@given(st.floats(0.0001, 50), st.lists(st.lists(works(), min_size=1, max_size=4), min_size=1, max_size=12))
def test_no_tree_at_any_price_exceeds_its_limit(max_cost_usd: float, tree: list[list[Work]]) -> None:
    spending = make_spending(max_cost_usd)

    limits_hit = set[str]()

    async def branch(calls: list[Work]) -> None:
        for work in calls:
            try:
                await ask(spending, work)
            except BudgetExceeded as error:
                limits_hit.add(error.metadata["limit"])
                return
            assert spending.usage.cost_usd <= max_cost_usd * (1 + 1e-9)

    run_together(branch(calls) for calls in tree)
    assert limits_hit <= {"maxCostUsd"}
    left_usd = max_cost_usd - spending.usage.cost_usd
    if left_usd > 1e-6:
        # Every unspent reservation was returned.
        call_for_the_rest = CallNeeds("p/m", 0, 1, 1, Rates(0, left_usd * 0.999 * 1_000_000))
        asyncio.run(ask(spending, Work(call_for_the_rest, 0, 0, is_cancelled=False)))


@given(st.floats(0.01, 5), st.floats(1, 30), st.lists(works(), min_size=1, max_size=20))
def test_calls_billed_above_their_reservation_exceed_the_limit_by_at_most_one_excess(
    max_cost_usd: float, ratio: float, calls: list[Work]
) -> None:
    spending, excess_usd = make_spending(max_cost_usd), [0.0]

    async def run_calls() -> None:
        for work in calls:
            before_usd = spending.usage.cost_usd
            async with spending.model_call(work.needs) as reservation:
                assert work.needs.rates is not None
                assert reservation.output_tokens_max is not None
                worst_usd = work.needs.rates.count_cost(work.needs.input_tokens, reservation.output_tokens_max)
                spending.settle(common_pb2.Usage(cost_usd=worst_usd * ratio), ORIGIN, reservation)
            excess_usd.append(spending.usage.cost_usd - before_usd - reservation.cost_usd)

    with contextlib.suppress(BudgetExceeded):
        asyncio.run(run_calls())
    assert spending.usage.cost_usd <= max_cost_usd * (1 + 1e-9) + max(excess_usd)


@pytest.mark.parametrize("rates", [None, Rates(1.0, 1.0)], ids=["without a price", "dearer than its price"])
@pytest.mark.parametrize("cost_usd", [0.05, 0.02])
def test_simultaneous_calls_exceed_the_limit_by_at_most_one_of_them(rates: Rates | None, cost_usd: float) -> None:
    spending = make_spending(0.05, maxTokens=1_000_000, unknownPrice="MAX_TOKENS")
    needs = CallNeeds("p/m", 1000, 1000, 4000, rates)

    async def ask_once() -> None:
        with contextlib.suppress(BudgetExceeded):
            async with spending.model_call(needs) as reservation:
                await asyncio.sleep(0)
                spending.settle(common_pb2.Usage(output_tokens=9, cost_usd=cost_usd), ORIGIN, reservation)

    run_together(ask_once() for _ in range(8))
    assert 0.04 <= spending.usage.cost_usd < 0.05 + cost_usd


def test_calls_of_a_model_without_cost_run_in_parallel() -> None:
    spending = make_spending(0.05, maxTokens=1_000_000, unknownPrice="MAX_TOKENS")
    needs, together = CallNeeds("p/m", 1000, 1000, 4000, None), asyncio.Barrier(4)

    async def ask_once(barrier: asyncio.Barrier | None) -> None:
        async with spending.model_call(needs) as reservation:
            if barrier is not None:
                await barrier.wait()
            spending.settle(common_pb2.Usage(output_tokens=9), ORIGIN, reservation)

    asyncio.run(ask_once(None))
    run_together(ask_once(together) for _ in range(4))
    assert spending.usage.model_calls == 5


def test_a_free_model_may_be_called_when_all_money_is_spent() -> None:
    spending = make_spending(1.0)
    spending.settle(common_pb2.Usage(cost_usd=1.0), ORIGIN)
    free, dear = (CallNeeds("p/m", 10, 100, 100, Rates(0, price)) for price in (0.0, 1.0))
    asyncio.run(ask(spending, Work(free, 1, 0, is_cancelled=False)))
    with pytest.raises(BudgetExceeded):
        asyncio.run(ask(spending, Work(dear, 1, 0, is_cancelled=False)))
