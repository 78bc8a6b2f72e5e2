"""The RPC of budgets: a part of them is kept for a run before it is spent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import structlog

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.spend.periods import Period, find_period
from services.memory.storage.claims import Amount, Budget, SpendClaim
from services.memory.webhooks.store import warn_of_budget
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()


class BudgetRpcs(MemoryServiceServicer):
    """The part of the memory service that keeps money and tokens for runs."""

    _engine: Engine

    async def ReserveSpend(
        self, request: memory_pb2.ReserveSpendRequest, context: Context
    ) -> memory_pb2.ReserveSpendResponse:
        tenant, now = identity.require_identity().tenant, now_ms()
        periods = [find_period(budget.period, now) for budget in request.budgets]
        budgets = [make_budget(budget, period) for budget, period in zip(request.budgets, periods, strict=True)]
        least, wanted = _make_amount(request.least, "least"), _make_amount(request.wanted, "wanted")
        claim = SpendClaim(tenant, request.run_id, request.agent_keys, budgets, least, wanted, now)
        decision = await self._engine.spend.grant_claim(claim)
        if decision is None:
            raise NotFound(f"run {request.run_id} does not exist, or has ended", runId=request.run_id)
        for given, period, (_, share) in zip(request.budgets, periods, decision.nearing, strict=True):
            is_refusing = any(budget.budget_id == given.budget_id for budget in decision.refusing)
            if given.warn_at and (share >= given.warn_at or is_refusing):
                await self._warn(tenant, given, period)
        if decision.granted is None:
            raise _make_refusal(decision.refusing, request.budgets, periods, now)
        granted = memory_pb2.SpendAmount(nano_usd=decision.granted.nano_usd, tokens=decision.granted.tokens)
        return memory_pb2.ReserveSpendResponse(granted=granted)

    async def _warn(self, tenant: str, budget: memory_pb2.SpendBudget, period: Period) -> None:
        limits = {"nanoUsdMax": budget.nano_usd_max, "tokensMax": budget.tokens_max}
        subject = {"user": budget.user, "agentKey": budget.agent_key, "key": budget.key}
        told = {name: value for name, value in (limits | subject).items() if value} | {"opensAt": period.ends_at}
        args = (tenant, budget.budget_id, period.name, budget.warn_at, told)
        await warn_of_budget(self._engine.records.webhooks, *args, agent_key=budget.agent_key)


def _make_refusal(
    refusing: Sequence[Budget],
    given: Sequence[memory_pb2.SpendBudget],
    periods: Sequence[Period],
    now: int,
) -> QuotaExceeded:
    ends = {budget.budget_id: period for budget, period in zip(given, periods, strict=True)}
    last = max(refusing, key=lambda budget: ends[budget.budget_id].ends_at)
    period = ends[last.budget_id]
    log.info("budget refused", budget_id=last.budget_id, period=period.name)
    opens = f"{datetime.fromtimestamp(period.ends_at / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    return QuotaExceeded(
        f"budget {last.budget_id!r} of {period.name} has no room for the next model call; it opens again {opens}",
        retry_after_s=(period.ends_at - now) / 1000,
        budgetId=last.budget_id,
        opensAt=period.ends_at,
        retryAfterMs=period.ends_at - now,
    )


def make_budget(given: memory_pb2.SpendBudget, period: Period) -> Budget:
    if not 0 <= given.warn_at <= 1:
        raise InvalidRequest.of("budgets.warnAt", "must be 0 to 1")
    return Budget(
        budget_id=given.budget_id,
        first_day=period.first_day,
        last_day=period.last_day,
        user=given.user,
        agent_key=given.agent_key,
        credential=given.key,
        nano_usd_max=given.nano_usd_max if given.HasField("nano_usd_max") else None,
        tokens_max=given.tokens_max if given.HasField("tokens_max") else None,
    )


def _make_amount(given: memory_pb2.SpendAmount, name: str) -> Amount:
    if given.nano_usd < 0 or given.tokens < 0:
        raise InvalidRequest.of(name, "must not be negative")
    return Amount(given.nano_usd, given.tokens)
