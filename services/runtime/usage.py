"""Sums of the cost of model calls."""

from __future__ import annotations

from headrace.v1 import common_pb2


def add_cost(total: common_pb2.Usage, one: common_pb2.Usage) -> None:
    """Add tokens and money; calls are counted when they begin."""
    total.input_tokens += one.input_tokens
    total.output_tokens += one.output_tokens
    if one.HasField("reasoning_tokens"):
        total.reasoning_tokens += one.reasoning_tokens
    if one.HasField("cached_tokens"):
        total.cached_tokens += one.cached_tokens
    if one.HasField("cost_usd"):
        total.cost_usd += one.cost_usd
    if one.estimated:
        total.estimated = True
