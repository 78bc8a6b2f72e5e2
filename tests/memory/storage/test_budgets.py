"""Shares of budgets reserved for runs: atomic, never more than the budget in total, and always released; and the usage
of budgets that operators see. On both engines.
"""

import asyncio

import pytest

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from headrace.v1 import memory_pb2
from services.memory.spend import find_period
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_utc
from tests.support.memory.budgets import ADA, BOB, LIMIT, begin, budget, claim
from tests.support.memory.engines import Serve
from tests.support.memory.spend import charge, said
from tests.support.memory.writing import Memory, new_id, run_line

pytestmark = pytest.mark.engines


@pytest.mark.engines("postgres")
async def test_simultaneous_claims_do_not_exceed_the_budget(memory: Memory) -> None:
    runs = [(await begin(memory))[1] for _ in range(16)]
    with acting_as(ADA):
        outcomes = await asyncio.gather(*(claim(memory, run, 900) for run in runs), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert (outcomes.count(900), len(refused)) == (11, 5)
    first = refused[0]
    assert first.retry_after_s is not None
    assert 0 < first.retry_after_s <= 31 * 86_400
    assert (first.metadata["budgetId"], int(first.metadata["opensAt"]) > 0) == ("all", True)


async def test_charged_amounts_are_spent_and_no_longer_reserved(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await begin(memory)
        _, other = await begin(memory)
        with acting_as(ADA):
            assert await claim(memory, run_id, 6_000) == 6_000
            assert await claim(memory, other, 4_000) == 4_000
            # Half of the reservation is spent: the sum is the same.
            await memory.append(chat_id, run_id, said(charge(nano_usd=3_000)))
            with pytest.raises(QuotaExceeded):
                await claim(memory, other, 4_001)
            assert await claim(memory, run_id, 6_000) == 6_000
            # What the run has not spent when it ends is free for others.
            await memory.append(chat_id, run_id, said(charge(nano_usd=500)), run_line())
            assert await claim(memory, other, 6_500) == 6_500
            with pytest.raises(QuotaExceeded):
                await claim(memory, other, 6_501)
            with pytest.raises(NotFound):
                await claim(memory, run_id, 1)
    async with serve() as memory:
        with acting_as(ADA):
            usage = await memory.usage()
            assert usage.total.cost_nano_usd == 3_500
            with pytest.raises(QuotaExceeded):
                await claim(memory, other, 6_501)


async def test_a_dead_owners_reservation_is_released_when_its_lease_ends(memory: Memory) -> None:
    chat_id, dead = await begin(memory, ttl_ms=1)
    _, alive = await begin(memory)
    with acting_as(ADA):
        await claim(memory, dead, LIMIT)
        await asyncio.sleep(0.01)
        assert await claim(memory, alive, LIMIT) == LIMIT
        # A new owner may not spend what others have been given meanwhile.
        await memory.acquire(chat_id, dead, "b")
        with pytest.raises(QuotaExceeded):
            await claim(memory, dead, 1)


async def test_more_than_the_minimum_is_granted_while_there_is_room_for_others(memory: Memory) -> None:
    _, first = await begin(memory)
    _, second = await begin(memory)
    with acting_as(ADA):
        assert await claim(memory, first, 1_000, 4_000) == 4_000
        assert await claim(memory, second, 1_000, 9_000) == 3_500
        assert await claim(memory, second, 1_000, 9_000) == 3_500
        assert await claim(memory, second, 6_000, 9_000) == 6_000


async def test_a_budget_applies_to_a_user_key_agent_or_all_within_one_tenant(memory: Memory) -> None:
    _, adas = await begin(memory, ADA)
    _, bobs = await begin(memory, BOB)
    _, foreign = await begin(memory, Identity("globex", "ada"))
    subjects = (
        (budget(user="ada"), {"user": "bob"}),
        (budget(key="api_key:ada"), {"key": "api_key:other"}),
        (budget(agent_key="clerk"), {"agent_key": "writer"}),
    )
    with acting_as(ADA):
        assert await claim(memory, adas, LIMIT, None, budget(), agents=("chief", "clerk")) == LIMIT
    with acting_as(BOB):
        for subject, others in subjects:
            with pytest.raises(QuotaExceeded):
                await claim(memory, bobs, 1, None, subject)
            other = memory_pb2.SpendBudget()
            other.CopyFrom(budget(**others))
            assert await claim(memory, bobs, 1, None, other) == 1
        with pytest.raises(QuotaExceeded):
            await claim(memory, bobs, 1, None, budget())
        with pytest.raises(NotFound):
            await claim(memory, foreign, 1)
    with acting_as(Identity("globex", "ada")):
        assert await claim(memory, foreign, LIMIT) == LIMIT


async def test_tokens_are_limited_like_money_and_a_claim_is_granted_in_full_or_not_at_all(memory: Memory) -> None:
    _, first = await begin(memory)
    _, second = await begin(memory)
    tokens = memory_pb2.SpendBudget(budget_id="tokens", period="day", tokens_max=1_000)
    with acting_as(ADA):
        assert await claim(memory, first, (0, 900), None, tokens) == (0, 900)
        with pytest.raises(QuotaExceeded, match="tokens"):
            await claim(memory, second, (LIMIT, 101), None, budget(), tokens)
        assert await claim(memory, second, (LIMIT, 0), None, budget()) == (LIMIT, 0)


async def test_an_invalid_claim_is_rejected_naming_the_field(memory: Memory) -> None:
    _, run_id = await begin(memory)
    with acting_as(ADA):
        with pytest.raises(InvalidRequest, match="least"):
            await claim(memory, run_id, -1)
        with pytest.raises(InvalidRequest, match="warnAt"):
            await claim(memory, run_id, 1, None, budget(warn_at=1.5))
        with pytest.raises(InvalidRequest, match="period"):
            await claim(memory, run_id, 1, None, budget(period="week"))


def test_periods_are_calendar_days_and_months() -> None:
    now = round(now_utc().timestamp() * 1000)
    assert find_period("day", now).name == now_utc().date().isoformat()
    for date_ms, name, days in ((1_706_745_600_000, "2024-02", 29), (1_735_603_200_000, "2024-12", 31)):
        month = find_period("month", date_ms)
        assert (month.name, month.last_day - month.first_day + 1) == (name, days)
        assert month.ends_at > date_ms


async def test_webhooks_are_notified_once_per_period(memory: Memory) -> None:
    operator = Identity("acme", "olga", scopes=ALL_SCOPES)
    webhook_id = new_id()
    await memory.call_as(operator, "CreateWebhook", webhook_id=webhook_id, url="https://hooks.example/")
    runs = [(await begin(memory))[1] for _ in range(6)]
    warned = budget(warn_at=0.8)
    with acting_as(ADA):
        for count, run_id in enumerate(runs, 1):
            if count < 6:
                assert await claim(memory, run_id, 2_000, None, warned) == 2_000
            else:
                with pytest.raises(QuotaExceeded):
                    await claim(memory, run_id, 2_000, None, warned)
            found = await memory.call_as(operator, "ListDeliveries", webhook_id=webhook_id)
            assert [delivery.type for delivery in found.deliveries] == ["headrace.budget.warning"] * (count >= 4)


async def measure(memory: Memory, who: Identity, *budgets: memory_pb2.SpendBudget) -> list[tuple[int, int]]:
    uses = (await memory.call_as(who, "MeasureBudgets", budgets=budgets)).uses
    assert all(use.ends_at > 0 for use in uses)
    return [(use.spent.nano_usd, use.reserved.nano_usd) for use in uses]


async def test_spent_and_reserved_amounts_are_reported_for_the_own_tenant_only(memory: Memory) -> None:
    chat_id, run_id = await begin(memory, ADA)
    with acting_as(ADA):
        await claim(memory, run_id, 6_000)
        await memory.append(chat_id, run_id, said(charge(nano_usd=2_500)))
    budgets = (budget(), budget(user="ada"), budget(user="bob"))
    assert await measure(memory, BOB, *budgets) == [(2_500, 3_500), (2_500, 3_500), (0, 0)]
    assert await measure(memory, Identity("globex", "ada"), *budgets) == [(0, 0)] * 3


async def test_the_stored_facts_of_each_user_are_counted_against_the_limit(memory: Memory) -> None:
    await memory.call_as(ADA, "Remember", text="Tea, not coffee.")
    used: dict[str, int] = {}
    for who in (ADA, BOB):
        limits = (await memory.call_as(who, "ListLimits")).limits
        used[who.user] = next(limit.used for limit in limits if limit.name == "facts")
    assert used == {"ada": 1, "bob": 0}
