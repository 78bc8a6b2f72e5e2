"""What a run is charged, call by call, as its log keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.v1 import common_pb2, memory_pb2
from services.runtime.usage import NANO_PER_USD, to_nano_usd


class Origin(NamedTuple):
    """Who asked a model, and which one."""

    agent_key: str
    model: str
    """As provider/model; empty where it is not known."""


def make_charge(usage: common_pb2.Usage, origin: Origin) -> memory_pb2.Charge | None:
    """Make the charge of a call, or of as many as `usage` counts; None where nothing was spent."""
    if not (usage.input_tokens or usage.output_tokens or usage.cost_usd):
        return None
    return memory_pb2.Charge(
        agent_key=origin.agent_key,
        model=origin.model.strip("/"),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        model_calls=usage.model_calls or 1,
        cost_nano_usd=to_nano_usd(usage.cost_usd),
        reasoning_tokens=usage.reasoning_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        estimated=usage.estimated,
    )


def replace_cost(usage: common_pb2.Usage, charges: Iterable[memory_pb2.Charge]) -> None:
    """Put the sums of `charges` in the place of tokens and money; calls are counted when they begin."""
    charges = [*charges]

    def add_up(name: str) -> int:
        return sum(getattr(charge, name) for charge in charges)

    usage.input_tokens, usage.output_tokens = add_up("input_tokens"), add_up("output_tokens")
    cached_tokens, cost_nano_usd = add_up("cached_tokens"), add_up("cost_nano_usd")
    if cached_tokens or usage.HasField("cached_tokens"):
        usage.cached_tokens = cached_tokens
    if cost_nano_usd or usage.HasField("cost_usd"):
        usage.cost_usd = cost_nano_usd / NANO_PER_USD
    # Charges of earlier versions lack these; a replay has counted some of them.
    if reasoning_tokens := add_up("reasoning_tokens"):
        usage.reasoning_tokens = max(usage.reasoning_tokens, reasoning_tokens)
    if cache_write_tokens := add_up("cache_write_tokens"):
        usage.cache_write_tokens = max(usage.cache_write_tokens, cache_write_tokens)
    if add_up("estimated"):
        usage.estimated = True
