"""The cost of model calls: sums, and the maximum cost of a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.v1 import common_pb2

NANO_PER_USD = 1_000_000_000


def add_cost(total: common_pb2.Usage, one: common_pb2.Usage) -> None:
    """Add tokens and money; calls are counted when they begin."""
    total.input_tokens += one.input_tokens
    total.output_tokens += one.output_tokens
    if one.HasField("reasoning_tokens"):
        total.reasoning_tokens += one.reasoning_tokens
    if one.HasField("cached_tokens"):
        total.cached_tokens += one.cached_tokens
    if one.HasField("cache_write_tokens"):
        total.cache_write_tokens += one.cache_write_tokens
    if one.HasField("cost_usd"):
        total.cost_usd = round_cost(total.cost_usd + one.cost_usd)
    if one.estimated:
        total.estimated = True


def sum_usages(usages: Iterable[common_pb2.Usage]) -> common_pb2.Usage | None:
    """Sum up tokens, money and calls; None for none."""
    total: common_pb2.Usage | None = None
    for usage in usages:
        total = total or common_pb2.Usage()
        add_cost(total, usage)
        total.model_calls += usage.model_calls
        total.tool_calls += usage.tool_calls
    return total


def round_cost(usd: float) -> float:
    """Round to billionths of a US dollar, the unit of stored charges, so that 0.0001 + 0.0002 is 0.0003."""
    return round(usd, 9)


def to_nano_usd(usd: float) -> int:
    """Return billionths of a US dollar, because sums of floats would depend on their order."""
    return round(usd * NANO_PER_USD)


@dataclass(frozen=True, slots=True)
class Rates:
    """Highest prices at which a call may be billed, in US dollars per million tokens."""

    input_usd_per_mtok: float
    output_usd_per_mtok: float

    def count_cost(self, input_tokens: int, output_tokens: int) -> float:
        return (input_tokens * self.input_usd_per_mtok + output_tokens * self.output_usd_per_mtok) / 1_000_000

    def count_affordable_output(self, usd: float, input_tokens: int) -> float:
        """Return the output tokens that `usd` pay for after the input; negative if they do not even pay for the
        input."""
        left_usd = usd - self.count_cost(input_tokens, 0)
        if left_usd < 0:
            return -1
        if self.output_usd_per_mtok == 0:
            return float("inf")
        return left_usd * 1_000_000 // self.output_usd_per_mtok
