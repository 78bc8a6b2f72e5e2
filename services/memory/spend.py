"""Spending, and budgets: a run reserves a part of them before it spends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from headrace.v1 import memory_pb2, spend_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from headrace.v1.spend_pb2_grpc import SpendServiceServicer
from services.memory.storage.claims import Amount, Budget, SpendClaim
from services.memory.storage.spend import DAY_MS, ROWS_MAX, SpendGroup, SpendQuery
from services.memory.webhooks.store import warn_of_budget
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context

DAYS_DEFAULT = 30
DAYS_MAX = 366

_FIRST = date(1970, 1, 1)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def format_day(day: int) -> str:
    return (_FIRST + timedelta(days=day)).isoformat()


def parse_days(first: str, last: str, now: int) -> tuple[int, int]:
    """Return the first and the last day; empty texts mean the last 30 days before `now`, in Unix milliseconds.

    Raises:
        InvalidRequest: They are not days, are in the wrong order, or span too many.
    """
    to_day = _parse_day("toDay", last) if last else now // DAY_MS
    from_day = _parse_day("fromDay", first) if first else to_day - DAYS_DEFAULT + 1
    if not from_day <= to_day < from_day + DAYS_MAX:
        raise InvalidRequest.of("fromDay", f"must be 0 to {DAYS_MAX - 1} days before toDay")
    return from_day, to_day


def _parse_day(field: str, text: str) -> int:
    try:
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        day = (date.fromisoformat(text) - _FIRST).days
        if day < DAYS_MAX:
            raise ValueError(text)  # nothing was counted then, and earlier days may have no date
        return day
    except ValueError as error:
        raise InvalidRequest.of(field, f"{text!r}: expected a day such as 2026-11-23") from error


@dataclass(frozen=True, slots=True)
class Period:
    name: str
    """Such as 2026-11-23 or 2026-11."""
    first_day: int
    last_day: int
    """Days since 1970-01-01, both included."""

    @property
    def ends_at(self) -> int:
        """Return the start of the next period, in Unix milliseconds."""
        return (self.last_day + 1) * DAY_MS


def find_period(word: str, now: int) -> Period:
    """Return the day or month that contains `now`, in Unix milliseconds."""
    today = now // DAY_MS
    date = datetime.fromtimestamp(now / 1000, UTC).date()
    if word == "day":
        return Period(date.isoformat(), today, today)
    first = today - date.day + 1
    after = (date.replace(day=28) + timedelta(days=4)).replace(day=1)
    return Period(f"{date:%Y-%m}", first, first + (after - date.replace(day=1)).days - 1)


_COLUMNS = {"day": "day", "user": "user_name", "agent": "agent_key", "model": "model", "key": "credential"}
"""Columns of the store by the words of `group_by`."""

_FIELDS = {"user_name": "user", "credential": "key"}
"""Fields of a row by column, if their names differ."""


class SpendService(SpendServiceServicer):
    def __init__(self, engine: Engine, clock: Callable[[], int]) -> None:
        """`clock` returns Unix milliseconds."""
        self._engine = engine
        self._clock = clock

    async def GetUsage(self, request: spend_pb2.GetUsageRequest, context: Context) -> spend_pb2.GetUsageResponse:
        query = _make_query(request, self._clock())
        answer = await self._engine.spend.sum_spend(query)
        return spend_pb2.GetUsageResponse(
            rows=map(_make_row, answer.groups[:ROWS_MAX]),
            total=_make_row(SpendGroup({}, answer.total)),
            is_cut=len(answer.groups) > ROWS_MAX,
            from_day=format_day(query.first_day),
            to_day=format_day(query.last_day),
        )


def _make_query(request: spend_pb2.GetUsageRequest, now: int) -> SpendQuery:
    """Return the query. Raises InvalidRequest, and PermissionDenied if the caller may only see their own usage."""
    if unknown := set(request.group_by) - _COLUMNS.keys():
        raise InvalidRequest.of("groupBy", f"{min(unknown)!r}: expected some of {', '.join(_COLUMNS)}")
    if request.scope not in ("", "own", "tenant"):
        raise InvalidRequest.of("scope", f"{request.scope!r}: expected own or tenant")
    is_whole = request.scope == "tenant"
    caller = identity.require_scope("operate") if is_whole else identity.require_identity()
    if request.user and not is_whole:
        raise InvalidRequest.of("user", "is for scope tenant")
    first, last = parse_days(request.from_day, request.to_day, now)
    wanted = {
        "user_name": request.user if is_whole else caller.user,
        "agent_key": request.agent_key,
        "model": request.model,
        "credential": request.key,
    }
    return SpendQuery(
        caller.tenant,
        first,
        last,
        {_COLUMNS[word] for word in request.group_by},
        {column: value for column, value in wanted.items() if value},
    )


def _make_row(group: SpendGroup) -> spend_pb2.UsageRow:
    row = copy_fields(group.total, spend_pb2.UsageRow)
    for column, value in group.columns.items():
        setattr(row, _FIELDS.get(column, column), format_day(value) if column == "day" else value)
    return row


log = structlog.get_logger()


class BudgetRpcs(MemoryServiceServicer):
    """RPCs of the memory service that reserve money and tokens for runs."""

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
                facts = {"nanoUsdMax": given.nano_usd_max, "tokensMax": given.tokens_max}
                facts |= {"user": given.user, "agentKey": given.agent_key, "key": given.key}
                facts = {name: value for name, value in facts.items() if value} | {"opensAt": period.ends_at}
                args = (tenant, given.budget_id, period.name, given.warn_at, facts)
                await warn_of_budget(self._engine.records.webhooks, *args, agent_key=given.agent_key)
        if decision.granted is None:
            raise _make_refusal(decision.refusing, request.budgets, periods, now)
        granted = memory_pb2.SpendAmount(nano_usd=decision.granted.nano_usd, tokens=decision.granted.tokens)
        return memory_pb2.ReserveSpendResponse(granted=granted)

    async def MeasureBudgets(
        self, request: memory_pb2.MeasureBudgetsRequest, context: Context
    ) -> memory_pb2.MeasureBudgetsResponse:
        tenant, now = identity.require_identity().tenant, now_ms()
        periods = [find_period(budget.period, now) for budget in request.budgets]
        budgets = [make_budget(budget, period) for budget, period in zip(request.budgets, periods, strict=True)]
        uses = await self._engine.spend.measure_uses(SpendClaim(tenant, "", (), budgets, Amount(), Amount(), now))
        return memory_pb2.MeasureBudgetsResponse(
            uses=[
                memory_pb2.BudgetUse(
                    spent=_show_amount(use.spent), reserved=_show_amount(use.kept), ends_at=period.ends_at
                )
                for use, period in zip(uses, periods, strict=True)
            ]
        )


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


def _show_amount(amount: Amount) -> memory_pb2.SpendAmount:
    return memory_pb2.SpendAmount(nano_usd=amount.nano_usd, tokens=amount.tokens)
