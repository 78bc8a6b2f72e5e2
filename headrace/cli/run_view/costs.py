"""A run's cost and the budget left, in words."""

from __future__ import annotations

import msgspec

from headrace.v1 import common_pb2


class BudgetLeft(msgspec.Struct, frozen=True, rename="camel"):
    """A live run's budget left, as GET /api/run has it."""

    model_calls: int = 0
    tool_calls: int = 0
    time_ms: int = 0
    tokens: int | None = None
    cost_usd: float | None = None


def describe_usage(usage: common_pb2.Usage) -> str:
    parts = [f"{usage.input_tokens} tokens in, {usage.output_tokens} out", _count(usage.model_calls, "model call")]
    if usage.tool_calls:
        parts.append(_count(usage.tool_calls, "tool call"))
    if usage.HasField("cost_usd"):
        parts.append(f"${usage.cost_usd:.4f}")
    return ", ".join(parts) + (" (estimated)" if usage.estimated else "")


def describe_budget(left: BudgetLeft) -> str:
    parts = [_count(left.model_calls, "model call"), _count(left.tool_calls, "tool call"), f"{left.time_ms // 1000} s"]
    if left.tokens is not None:
        parts.append(f"{left.tokens} tokens")
    if left.cost_usd is not None:
        parts.append(f"${left.cost_usd:.4f}")
    return f"left: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
