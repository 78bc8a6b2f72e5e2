"""Parts of budgets that are kept for runs: atomic, together never more than there is, and never for ever; and what is
used of budgets, as operators are told it. On both engines."""

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
async def test_claims_at_once_pass_no_budget(memory: Memory) -> None:
    runs = [(await begin(memory))[1] for _ in range(16)]
    with acting_as(ADA):
        outcomes = await asyncio.gather(*(claim(memory, run, 900) for run in runs), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert (outcomes.count(900), len(refused)) == (11, 5)
    first = refused[0]
    assert first.retry_after_s is not None
    assert 0 < first.retry_after_s <= 31 * 86_400
    assert (first.metadata["budgetId"], int(first.metadata["opensAt"]) > 0) == ("all", True)


async def test_what_is_charged_is_spent_and_no_longer_kept(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await begin(memory)
        _, other = await begin(memory)
        with acting_as(ADA):
            assert await claim(memory, run_id, 6_000) == 6_000
            assert await claim(memory, other, 4_000) == 4_000
            # Half is spent of what was kept: the sum is the same.
            await memory.append(chat_id, run_id, said(charge(nano_usd=3_000)))
            with pytest.raises(QuotaExceeded):
                await claim(memory, other, 4_001)
            assert await claim(memory, run_id, 6_000) == 6_000
            # What the run has left when it ends is there for others.
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


async def test_what_was_kept_for_a_dead_owner_is_free_when_its_lease_ends(memory: Memory) -> None:
    chat_id, dead = await begin(memory, ttl_ms=1)
    _, alive = await begin(memory)
    with acting_as(ADA):
        await claim(memory, dead, LIMIT)
        await asyncio.sleep(0.01)
        assert await claim(memory, alive, LIMIT) == LIMIT
        # Whoever takes it over may not spend what others have been given meanwhile.
        await memory.acquire(chat_id, dead, "b")
        with pytest.raises(QuotaExceeded):
            await claim(memory, dead, 1)


async def test_more_than_is_needed_is_given_while_there_is_room_for_others(memory: Memory) -> None:
    _, first = await begin(memory)
    _, second = await begin(memory)
    with acting_as(ADA):
        assert await claim(memory, first, 1_000, 4_000) == 4_000
        assert await claim(memory, second, 1_000, 9_000) == 3_500
        assert await claim(memory, second, 1_000, 9_000) == 3_500
        assert await claim(memory, second, 6_000, 9_000) == 6_000


async def test_a_budget_is_of_a_user_a_key_an_agent_or_all_and_of_one_tenant(memory: Memory) -> None:
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


async def test_tokens_are_limited_as_money_is_and_all_or_nothing_is_kept(memory: Memory) -> None:
    _, first = await begin(memory)
    _, second = await begin(memory)
    tokens = memory_pb2.SpendBudget(budget_id="tokens", period="day", tokens_max=1_000)
    with acting_as(ADA):
        assert await claim(memory, first, (0, 900), None, tokens) == (0, 900)
        with pytest.raises(QuotaExceeded, match="tokens"):
            await claim(memory, second, (LIMIT, 101), None, budget(), tokens)
        assert await claim(memory, second, (LIMIT, 0), None, budget()) == (LIMIT, 0)


async def test_what_is_no_claim_is_refused_with_its_field(memory: Memory) -> None:
    _, run_id = await begin(memory)
    with acting_as(ADA):
        with pytest.raises(InvalidRequest, match="least"):
            await claim(memory, run_id, -1)
        with pytest.raises(InvalidRequest, match="warnAt"):
            await claim(memory, run_id, 1, None, budget(warn_at=1.5))
        with pytest.raises(InvalidRequest, match="period"):
            await claim(memory, run_id, 1, None, budget(period="week"))


def test_periods_are_days_and_months_of_the_calendar() -> None:
    now = round(now_utc().timestamp() * 1000)
    assert find_period("day", now).name == now_utc().date().isoformat()
    for date_ms, name, days in ((1_706_745_600_000, "2024-02", 29), (1_735_603_200_000, "2024-12", 31)):
        month = find_period("month", date_ms)
        assert (month.name, month.last_day - month.first_day + 1) == (name, days)
        assert month.ends_at > date_ms


async def test_webhooks_are_told_once_in_the_period(memory: Memory) -> None:
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


async def test_what_is_spent_and_reserved_is_told_of_the_own_tenant(memory: Memory) -> None:
    chat_id, run_id = await begin(memory, ADA)
    with acting_as(ADA):
        await claim(memory, run_id, 6_000)
        await memory.append(chat_id, run_id, said(charge(nano_usd=2_500)))
    asked = (budget(), budget(user="ada"), budget(user="bob"))
    assert await measure(memory, BOB, *asked) == [(2_500, 3_500), (2_500, 3_500), (0, 0)]
    assert await measure(memory, Identity("globex", "ada"), *asked) == [(0, 0)] * 3


async def test_what_a_tenant_and_a_user_keep_is_counted(memory: Memory) -> None:
    await memory.call_as(ADA, "Remember", text="Tea, not coffee.")
    used: dict[str, int] = {}
    for who in (ADA, BOB):
        limits = (await memory.call_as(who, "ListLimits")).limits
        used[who.user] = next(limit.used for limit in limits if limit.name == "facts")
    assert used == {"ada": 1, "bob": 0}
