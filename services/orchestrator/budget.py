"""What a run may spend: reserved before each call, settled after it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.errors import BudgetExceeded
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.definition import Budget, Definition


@dataclass(frozen=True, slots=True)
class Defaults:
    """A mode's limits where the agent sets none."""

    model_calls: int
    tool_calls: int
    steps: int
    timeout_ms: int


DEFAULTS = {
    "ONESHOT": Defaults(model_calls=3, tool_calls=5, steps=1, timeout_ms=120_000),
    "REACT": Defaults(model_calls=15, tool_calls=20, steps=6, timeout_ms=120_000),
}


class Spending:
    """The budget of one run and what is spent of it. Not shared between runs."""

    def __init__(self, agent: Definition) -> None:
        limits, defaults = agent.limits, DEFAULTS[agent.mode]
        self._limits: Budget = limits
        self.model_calls_max = limits.max_model_calls or defaults.model_calls
        self.tool_calls_max = defaults.tool_calls if limits.max_tool_calls is None else limits.max_tool_calls
        react_steps = agent.react.max_steps if agent.react and agent.mode == "REACT" else None
        self.steps_max = react_steps or limits.max_steps or defaults.steps
        self.timeout_s = (limits.timeout_ms or defaults.timeout_ms) / 1000
        self.model_timeout_s = limits.model_timeout_ms / 1000
        self.tool_timeout_ms = limits.tool_timeout_ms
        self.usage = common_pb2.Usage()
        """Spent so far."""
        self._started = time.monotonic()

    def start_clock(self) -> None:
        """Count time from now: waiting in a chat's queue is not charged."""
        self._started = time.monotonic()

    @property
    def time_left_s(self) -> float:
        return max(0.0, self.timeout_s - (time.monotonic() - self._started))

    @property
    def model_calls_left(self) -> int:
        return max(0, self.model_calls_max - self.usage.model_calls)

    def reserve_model_call(self, *, beyond: bool = False) -> None:
        """Take one model call; `beyond` is the one call for a final answer that a run is granted at the limit.

        Raises:
            BudgetExceeded: With what was spent.
        """
        if not beyond and self.model_calls_left == 0:
            raise self.exceeded("maxModelCalls")
        spent = self.usage.input_tokens + self.usage.output_tokens
        if self._limits.max_tokens is not None and spent >= self._limits.max_tokens:
            raise self.exceeded("maxTokens")
        if self._limits.max_cost_usd is not None and self.usage.cost_usd >= self._limits.max_cost_usd:
            raise self.exceeded("maxCostUsd")
        self.usage.model_calls += 1

    def reserve_tool_calls(self, count: int) -> bool:
        """Take `count` tool calls, all or none; False when there are not so many left."""
        if self.usage.tool_calls + count > self.tool_calls_max:
            return False
        self.usage.tool_calls += count
        return True

    def settle(self, usage: common_pb2.Usage) -> None:
        """Add what a model call has cost; the call itself was counted when it was reserved."""
        total = self.usage
        total.input_tokens += usage.input_tokens
        total.output_tokens += usage.output_tokens
        if usage.HasField("reasoning_tokens"):
            total.reasoning_tokens += usage.reasoning_tokens
        if usage.HasField("cached_tokens"):
            total.cached_tokens += usage.cached_tokens
        if usage.HasField("cost_usd"):
            total.cost_usd += usage.cost_usd
        if usage.estimated:
            total.estimated = True

    def exceeded(self, limit: str) -> BudgetExceeded:
        """The error for a limit, naming what was spent."""
        usage = self.usage
        return BudgetExceeded(
            f"the run's {limit} is used up",
            limit=limit,
            modelCalls=usage.model_calls,
            toolCalls=usage.tool_calls,
            tokens=usage.input_tokens + usage.output_tokens,
        )

    def left(self) -> agent_pb2.BudgetLeft:
        """What may still be spent."""
        left = agent_pb2.BudgetLeft(
            model_calls=self.model_calls_left,
            tool_calls=max(0, self.tool_calls_max - self.usage.tool_calls),
            time_ms=round(self.time_left_s * 1000),
        )
        if self._limits.max_tokens is not None:
            left.tokens = max(0, self._limits.max_tokens - self.usage.input_tokens - self.usage.output_tokens)
        if self._limits.max_cost_usd is not None:
            left.cost_usd = max(0.0, self._limits.max_cost_usd - self.usage.cost_usd)
        return left
