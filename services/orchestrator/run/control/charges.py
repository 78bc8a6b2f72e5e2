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
    )


def replace_cost(usage: common_pb2.Usage, charges: Iterable[memory_pb2.Charge]) -> None:
    """Put the sums of `charges` in the place of tokens and money; calls are counted when they begin."""
    usage.input_tokens = usage.output_tokens = cached_tokens = cost_nano_usd = 0
    for charge in charges:
        usage.input_tokens += charge.input_tokens
        usage.output_tokens += charge.output_tokens
        cached_tokens += charge.cached_tokens
        cost_nano_usd += charge.cost_nano_usd
    if cached_tokens or usage.HasField("cached_tokens"):
        usage.cached_tokens = cached_tokens
    if cost_nano_usd or usage.HasField("cost_usd"):
        usage.cost_usd = cost_nano_usd / NANO_PER_USD
