"""Reserves the budget before each call and settles it afterwards.

A call waits if only other calls' reservations block it, because most of that is given back. It also waits for another
call of the same model while the cost of one is unknown: several at once could exceed the limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

from headrace.errors import BudgetExceeded, PriceUnknown
from headrace.v1 import agent_pb2, common_pb2, memory_pb2, tools_pb2
from services.orchestrator.agents.definition import Budget, Definition
from services.orchestrator.agents.definition.modes import MODES
from services.orchestrator.money.budgets import Allowance
from services.orchestrator.money.charges import Origin, Reservation, allow_output, make_charge, replace_cost
from services.orchestrator.money.clock import Clock
from services.orchestrator.peers.models import CallNeeds
from services.runtime.usage import add_cost


class Spending:
    def __init__(
        self, agent: Definition, recorded: Sequence[memory_pb2.Charge] = (), allowance: Allowance | None = None
    ) -> None:
        """`recorded` are the charges of earlier owners of the run; `allowance` enforces tenants' budgets."""
        self._allowance = allowance
        limits, defaults = agent.limits, MODES[agent.mode]
        self.limits: Budget = limits
        self.model_calls_max = limits.max_model_calls or defaults.model_calls
        self.tool_calls_max = defaults.tool_calls if limits.max_tool_calls is None else limits.max_tool_calls
        self.usage = common_pb2.Usage()
        self.answers: Counter[str | None] = Counter()
        """Answers by sub-agent; None is the run itself."""
        self.clock = Clock((limits.timeout_ms or defaults.timeout_ms) / 1000)
        self.unlogged: list[memory_pb2.Charge] = []
        """Charges not yet in the run's log."""
        self._recorded = [*recorded]
        self._charged: list[memory_pb2.Charge] = []
        self._open: dict[Reservation, None] = {}
        self._cost_ratio = 1.0
        """The greatest ratio of a call's cost to its reservation; 1 unless a call cost more than estimated."""
        self._priced: set[str] = set()
        """Models that have reported a call's cost."""
        self._costless: set[str] = set()
        """Models that have reported a call without cost."""
        self._given_back: asyncio.Event | None = None

    @property
    def time_left_s(self) -> float:
        return self.clock.left_s

    @property
    def model_calls_left(self) -> int:
        reserved = sum(reservation.model_calls for reservation in self._open)
        return max(0, self.model_calls_max - self.usage.model_calls - reserved)

    @property
    def is_out_of_calls(self) -> bool:
        """Whether all model calls have been made, not just reserved."""
        return self.usage.model_calls >= self.model_calls_max

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def limits_money(self) -> bool:
        return self.limits.max_cost_usd is not None

    @property
    def needs_prices(self) -> bool:
        """Whether a call's cost must be known in advance."""
        return self.limits_money or (self._allowance is not None and self._allowance.file.current.limit_money)

    @asynccontextmanager
    async def covering(self, needs: CallNeeds) -> AsyncGenerator[None]:
        """Hold a call's share of the tenant's budgets inside the block. Raises QuotaExceeded."""
        release = await self._hold(needs)
        try:
            yield
        finally:
            release()

    async def _hold(self, needs: CallNeeds) -> Callable[[], None]:
        """Hold a call's share as `covering`; return what releases it."""
        if self._allowance is None:
            return lambda: None
        self.catch_up()
        return partial(self._allowance.release, await self._allowance.hold(needs, self.usage))

    @asynccontextmanager
    async def model_call(self, needs: CallNeeds, *, beyond: bool = False) -> AsyncGenerator[Reservation]:
        """Reserve a model call, which the block settles; `beyond` grants one final answer at the limit of calls.

        Raises:
            BudgetExceeded: A limit is reached.
            PriceUnknown: Money is limited, and the call's cost is unknown.
            QuotaExceeded: A budget of the tenant has no room for it.
        """
        release = await self._hold(needs)
        try:
            while self._open and self._must_wait(needs, beyond):
                self._given_back = self._given_back or asyncio.Event()
                await self._given_back.wait()
            reservation = self._reserve(needs, beyond)
            try:
                yield reservation
            finally:
                self.give_back(reservation)
        finally:
            release()

    @contextmanager
    def side_call(
        self, needs: CallNeeds, *, beyond: bool = False, is_whole: bool = False, calls_more: int = 0
    ) -> Generator[Reservation]:
        """Reserve like `model_call`, from what is left now, without waiting; `is_whole` refuses an answer that may be
        too short.

        If `needs` cover several calls, `calls_more` is the number after the first; each is counted when it is charged.
        """
        if is_whole and self._is_short_of_money(needs):
            raise self._make_too_dear(needs)
        reservation = self._reserve(needs, beyond, calls_more)
        try:
            yield reservation
        finally:
            self.give_back(reservation)

    def _reserve(self, needs: CallNeeds, beyond: bool, calls_more: int = 0) -> Reservation:
        self.catch_up()
        if self.usage.model_calls > self.model_calls_max or (not beyond and self.model_calls_left == 0):
            raise self.make_exceeded("maxModelCalls")
        if self.limits.max_tokens is not None and self.tokens >= self.limits.max_tokens:
            raise self.make_exceeded("maxTokens")
        reservation = self._reserve_money(needs)
        if calls_more:
            reservation = replace(reservation, model_calls=calls_more)
        self._open[reservation] = None
        self.usage.model_calls += 1
        return reservation

    def _reserve_money(self, needs: CallNeeds) -> Reservation:
        limits, spent_usd = self.limits, self.usage.cost_usd
        if limits.max_cost_usd is None:
            return Reservation(needs.tokens)
        if needs.rates is None:
            if limits.unknown_price == "REFUSE":
                raise _make_price_unknown(needs.model)
            if spent_usd >= limits.max_cost_usd:
                raise self.make_exceeded("maxCostUsd")
            return Reservation(needs.tokens, model=needs.model)
        output_tokens = self._allow_output(needs)
        if not output_tokens:
            raise self._make_too_dear(needs)
        cost_usd = self._cost_ratio * needs.rates.count_cost(needs.input_tokens, output_tokens)
        is_lowered = output_tokens < needs.output_tokens_max
        return Reservation(needs.tokens, cost_usd, 0, output_tokens, needs.model, is_lowered)

    def give_back(self, reservation: Reservation) -> None:
        self._open.pop(reservation, None)
        if self._given_back is not None:
            self._given_back.set()
            self._given_back = None

    def recall_model_call(self, usage: common_pb2.Usage | None) -> None:
        """Count a call that an earlier owner was charged for; None: the log has no usage for it."""
        self.usage.model_calls += 1
        add_cost(self.usage, usage or common_pb2.Usage())

    def catch_up(self) -> None:
        """Count everything charged to earlier owners; a replay sees only their answers."""
        if self._recorded:
            replace_cost(self.usage, [*self._recorded, *self._charged])

    def charge_model_call(self, usage: common_pb2.Usage, origin: Origin) -> None:
        self.usage.model_calls += 1
        self.settle(usage, origin)

    def give_back_model_call(self) -> None:
        self.usage.model_calls -= 1

    def reserve_tool_calls(self, count: int) -> bool:
        """Reserve all of the calls or none; return False if fewer are left."""
        if self.usage.tool_calls + count > self.tool_calls_max:
            return False
        self.usage.tool_calls += count
        return True

    def reserve_for_tool(self, share: int, needs: CallNeeds) -> Reservation:
        """Reserve all that is left except one call, divided by `share`; `needs` describe any one of the tool's calls.

        Raises:
            PriceUnknown: Money is limited, and the calls' cost is unknown.
        """
        limits = self.limits
        if limits.max_cost_usd is not None and needs.rates is None and limits.unknown_price == "REFUSE":
            raise _make_price_unknown(needs.model)
        calls = max(0, self.model_calls_left - 1) // share
        reserved_tokens = sum(reservation.tokens for reservation in self._open)
        tokens = 0 if limits.max_tokens is None else max(0, limits.max_tokens - self.tokens - reserved_tokens) // share
        cost_usd = 0.0 if needs.rates is None or limits.max_cost_usd is None else self._measure_free_usd() / share
        reservation = Reservation(tokens, max(0.0, cost_usd), calls)
        self._open[reservation] = None
        return reservation

    def make_tool_budget(self, reservation: Reservation, needs: CallNeeds) -> tools_pb2.ToolBudget:
        budget = tools_pb2.ToolBudget(model_calls=reservation.model_calls)
        if self.limits.max_tokens is not None:
            budget.tokens = reservation.tokens
        if needs.rates is not None:
            budget.input_usd_per_mtok = needs.rates.input_usd_per_mtok
            budget.output_usd_per_mtok = needs.rates.output_usd_per_mtok
            if self.limits_money:
                budget.cost_usd = reservation.cost_usd
        return budget

    def settle_tool(self, reservation: Reservation | None, usage: common_pb2.Usage, origin: Origin) -> None:
        self.usage.model_calls += usage.model_calls
        self.settle(usage, origin)
        if reservation is not None:
            self.give_back(reservation)

    def settle(self, usage: common_pb2.Usage, origin: Origin, reservation: Reservation | None = None) -> None:
        """Charge a call's usage; if it cost more than reserved, later reservations are larger."""
        add_cost(self.usage, usage)
        if (charge := make_charge(usage, origin)) is not None:
            self.unlogged.append(charge)
            self._charged.append(charge)
        if reservation is None:
            return
        if not usage.estimated:
            (self._priced if usage.cost_usd else self._costless).add(reservation.model)
        if 0 < reservation.cost_usd < usage.cost_usd:
            self._cost_ratio *= usage.cost_usd / reservation.cost_usd

    def make_exceeded(self, limit: str) -> BudgetExceeded:
        usage = self.usage
        return BudgetExceeded(
            f"the run's {limit} is used up",
            limit=limit,
            modelCalls=usage.model_calls,
            toolCalls=usage.tool_calls,
            tokens=self.tokens,
            costUsd=f"{usage.cost_usd:.6f}",
            timeMs=round((self.clock.timeout_s - self.time_left_s) * 1000),
        )

    def describe_cut(self, needs: CallNeeds) -> str:
        return (
            f"the answer was cut, as the run's maxCostUsd of {self.limits.max_cost_usd:g} US dollars leaves no more: "
            f"{self.usage.cost_usd:.6f} are spent, and the whole answer might have cost {needs.cost_usd_max:.6f}"
        )

    def _make_too_dear(self, needs: CallNeeds) -> BudgetExceeded:
        error, next_usd = self.make_exceeded("maxCostUsd"), self._cost_ratio * needs.cost_usd_max
        error.message = (
            f"the run's maxCostUsd of {self.limits.max_cost_usd:g} US dollars is too little for the next model call: "
            f"{self.usage.cost_usd:.6f} are spent, and the call might cost {next_usd:.6f}"
        )
        error.metadata |= {"maxCostUsd": f"{self.limits.max_cost_usd:g}", "nextCallUsd": f"{next_usd:.6f}"}
        return error

    def measure_left(self) -> agent_pb2.BudgetLeft:
        left = agent_pb2.BudgetLeft(
            model_calls=self.model_calls_left,
            tool_calls=max(0, self.tool_calls_max - self.usage.tool_calls),
            time_ms=round(self.time_left_s * 1000),
        )
        if self.limits.max_tokens is not None:
            left.tokens = max(0, self.limits.max_tokens - self.tokens)
        if self.limits.max_cost_usd is not None:
            left.cost_usd = max(0.0, self.limits.max_cost_usd - self.usage.cost_usd)
        return left

    def _must_wait(self, needs: CallNeeds, beyond: bool) -> bool:
        limits = self.limits
        if not beyond and not self.is_out_of_calls and self.model_calls_left == 0:
            return True
        reserved_tokens = sum(reservation.tokens for reservation in self._open)
        if limits.max_tokens is not None and self.tokens < limits.max_tokens <= self.tokens + reserved_tokens:
            return True
        if self._is_cost_uncertain(needs) and any(reservation.model == needs.model for reservation in self._open):
            return True
        return any(reservation.cost_usd for reservation in self._open) and self._is_short_of_money(needs)

    def _is_cost_uncertain(self, needs: CallNeeds) -> bool:
        """Return whether the model's calls have an unpredictable cost: it has no price, or no call has confirmed it
        yet."""
        if not self.limits_money or needs.model in self._costless:
            return False
        return needs.rates is None or (needs.cost_usd_max > 0 and needs.model not in self._priced)

    def _is_short_of_money(self, needs: CallNeeds) -> bool:
        return self.limits_money and self._allow_output(needs) < needs.output_tokens

    def _allow_output(self, needs: CallNeeds) -> int:
        return allow_output(needs, self._measure_free_usd() / self._cost_ratio)

    def _measure_free_usd(self) -> float:
        """Return the US dollars neither spent nor reserved; call it only with a limit."""
        reserved_usd = sum(reservation.cost_usd for reservation in self._open)
        return (self.limits.max_cost_usd or 0.0) - self.usage.cost_usd - reserved_usd


def _make_price_unknown(model: str) -> PriceUnknown:
    return PriceUnknown(
        f"model {model!r}, or one that it may fall back to, has no price in providers.json, and the run has a "
        "maxCostUsd; give it a price, or set the agent's budget.unknownPrice to MAX_TOKENS",
        model=model,
    )
