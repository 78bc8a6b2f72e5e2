"""Reserves the budget before each call and settles it afterwards.

A call waits when only others' reservations stand in its way, because most of that is given back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from headrace.errors import BudgetExceeded
from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator.agents.definition import Budget, Definition
from services.orchestrator.agents.definition.modes import MODES
from services.orchestrator.run.control.clock import Clock
from services.runtime.usage import add_cost


class Spending:
    def __init__(self, agent: Definition) -> None:
        limits, defaults = agent.limits, MODES[agent.mode]
        self._limits: Budget = limits
        self.model_calls_max = limits.max_model_calls or defaults.model_calls
        self.tool_calls_max = defaults.tool_calls if limits.max_tool_calls is None else limits.max_tool_calls
        self.timeout_s = (limits.timeout_ms or defaults.timeout_ms) / 1000
        self.model_timeout_s = limits.model_timeout_ms / 1000
        self.tool_timeout_ms = limits.tool_timeout_ms
        self.usage = common_pb2.Usage()
        self.answers: Counter[str | None] = Counter()
        """Answers by sub-agent; None is the run itself."""
        self.clock = Clock(self.timeout_s)
        self._reserved_calls = 0
        self._reserved_tokens = 0
        self._given_back: asyncio.Event | None = None

    @property
    def time_left_s(self) -> float:
        return self.clock.left_s

    @property
    def model_calls_left(self) -> int:
        return max(0, self.model_calls_max - self.usage.model_calls - self._reserved_calls)

    @property
    def is_out_of_calls(self) -> bool:
        """Whether all model calls are made, not merely reserved."""
        return self.usage.model_calls >= self.model_calls_max

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    @asynccontextmanager
    async def model_call(self, tokens: int, *, beyond: bool = False) -> AsyncGenerator[None]:
        """Reserve a model call, which the block settles.

        Raises:
            BudgetExceeded: A limit is reached.
        """
        while self._must_wait(beyond):
            self._given_back = self._given_back or asyncio.Event()
            await self._given_back.wait()
        self.reserve_model_call(beyond=beyond)
        self._reserved_tokens += tokens
        try:
            yield
        finally:
            self._give_back(tokens=tokens)

    def reserve_model_call(self, *, beyond: bool = False) -> None:
        """Count a model call; `beyond` grants one final answer at the limit.

        Raises:
            BudgetExceeded: A limit is reached.
        """
        if self.usage.model_calls > self.model_calls_max or (not beyond and self.model_calls_left == 0):
            raise self.make_exceeded("maxModelCalls")
        if self._limits.max_tokens is not None and self.tokens >= self._limits.max_tokens:
            raise self.make_exceeded("maxTokens")
        if self._limits.max_cost_usd is not None and self.usage.cost_usd >= self._limits.max_cost_usd:
            raise self.make_exceeded("maxCostUsd")
        self.usage.model_calls += 1

    def recall_model_call(self, usage: common_pb2.Usage) -> None:
        self.usage.model_calls += 1
        self.settle(usage)

    def give_back_model_call(self) -> None:
        self.usage.model_calls -= 1
        self._give_back()

    def count_answer(self, subagent_id: str | None) -> None:
        self.answers[subagent_id] += 1

    def reserve_tool_calls(self, count: int) -> bool:
        """Take all or none; return False when fewer are left."""
        if self.usage.tool_calls + count > self.tool_calls_max:
            return False
        self.usage.tool_calls += count
        return True

    def for_tool(self, share: int) -> tools_pb2.ToolBudget:
        """Reserve all that is left but one call, divided by `share`."""
        reserved = tools_pb2.ToolBudget(model_calls=max(0, self.model_calls_left - 1) // share)
        if self._limits.max_tokens is not None:
            reserved.tokens = max(0, self._limits.max_tokens - self.tokens - self._reserved_tokens) // share
        self._reserved_calls += reserved.model_calls
        self._reserved_tokens += reserved.tokens
        return reserved

    def settle_tool(self, reserved: tools_pb2.ToolBudget, usage: common_pb2.Usage) -> None:
        self.usage.model_calls += usage.model_calls
        self.settle(usage)
        self._give_back(calls=reserved.model_calls, tokens=reserved.tokens)

    def settle(self, usage: common_pb2.Usage) -> None:
        add_cost(self.usage, usage)

    def make_exceeded(self, limit: str) -> BudgetExceeded:
        usage = self.usage
        return BudgetExceeded(
            f"the run's {limit} is used up",
            limit=limit,
            modelCalls=usage.model_calls,
            toolCalls=usage.tool_calls,
            tokens=self.tokens,
            costUsd=f"{usage.cost_usd:.6f}",
            timeMs=round((self.timeout_s - self.time_left_s) * 1000),
        )

    def measure_left(self) -> agent_pb2.BudgetLeft:
        left = agent_pb2.BudgetLeft(
            model_calls=self.model_calls_left,
            tool_calls=max(0, self.tool_calls_max - self.usage.tool_calls),
            time_ms=round(self.time_left_s * 1000),
        )
        if self._limits.max_tokens is not None:
            left.tokens = max(0, self._limits.max_tokens - self.tokens)
        if self._limits.max_cost_usd is not None:
            left.cost_usd = max(0.0, self._limits.max_cost_usd - self.usage.cost_usd)
        return left

    def _must_wait(self, beyond: bool) -> bool:
        limits = self._limits
        if not beyond and not self.is_out_of_calls and self.model_calls_left == 0:
            return True
        if limits.max_tokens is None or self.tokens >= limits.max_tokens:
            return False
        return self.tokens + self._reserved_tokens >= limits.max_tokens

    def _give_back(self, *, calls: int = 0, tokens: int = 0) -> None:
        self._reserved_calls -= calls
        self._reserved_tokens -= tokens
        if self._given_back is not None:
            self._given_back.set()
            self._given_back = None
