"""What is used of budgets, as operators are told it, on both engines."""

from __future__ import annotations

import pytest

from headrace.streams import rpc_errors
from headrace.v1 import limits_pb2, memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.budgets import ADA, BOB, begin, budget, claim
from tests.support.memory.spend import charge, said
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines


async def measure(memory: Memory, who: Identity, *budgets: memory_pb2.SpendBudget) -> list[tuple[int, int]]:
    with acting_as(who), rpc_errors():
        uses = (await memory.stub.MeasureBudgets(memory_pb2.MeasureBudgetsRequest(budgets=budgets))).uses
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
    with acting_as(ADA), rpc_errors():
        await memory.stub.Remember(memory_pb2.RememberRequest(text="Tea, not coffee."))
    used: dict[str, int] = {}
    for who in (ADA, BOB):
        with acting_as(who), rpc_errors():
            limits = (await memory.stub.ListLimits(limits_pb2.ListLimitsRequest())).limits
        used[who.user] = next(limit.used for limit in limits if limit.name == "facts")
    assert used == {"ada": 1, "bob": 0}
