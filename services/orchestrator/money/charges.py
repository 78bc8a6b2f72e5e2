"""A call's reservation in a run's budget, and the charge that replaces it once the call's usage is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import BudgetExceeded, HeadraceError, StreamStalled
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator.peers.models import CallNeeds
from services.runtime.rpc.peer_calls import was_broken_connection
from services.runtime.usage import NANO_PER_USD, to_nano_usd

OUTPUT_TOKENS_MIN = 256
"""Minimum output tokens of a call. A shorter answer is not worth its prompt, so the call is refused instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    tokens: int = 0

    cost_usd: float = 0.0
    """Reserved cost in US dollars; 0 without a money limit."""

    model_calls: int = 0
    """Calls beyond the first, which is counted already: a tool's calls, or further ones of a compaction."""

    output_tokens_max: int | None = None
    """Maximum output tokens that the budget covers; None without a money limit."""

    model: str = ""
    """The called model, as provider/model; empty for a tool's calls."""

    is_lowered: bool = False
    """Whether the answer is limited to less than the agent or the model would allow."""


def grant_output(needs: CallNeeds, left_usd: float) -> int:
    """Return the output tokens that a call may use with `left_usd` left, 0 if too few.

    A call gets enough for a typical answer, but beyond that at most half of the rest, so that others can work
    concurrently.
    """
    if needs.rates is None or needs.cost_usd_max == 0:
        return needs.output_tokens_max
    affordable = int(
        min(needs.rates.count_affordable_output(left_usd, needs.input_tokens), needs.output_tokens_max * 2)
    )
    if affordable >= needs.output_tokens:
        return min(needs.output_tokens_max, max(needs.output_tokens, affordable // 2))
    return affordable if affordable >= min(OUTPUT_TOKENS_MIN, needs.output_tokens) else 0


class Origin(NamedTuple):
    """The agent that called a model, and the model."""

    agent_key: str
    model: str
    """As provider/model; empty if unknown."""


def make_charge(usage: common_pb2.Usage, origin: Origin) -> memory_pb2.Charge | None:
    """Create the charge of a call, or of as many calls as `usage` counts; None if nothing was spent."""
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
    """Replace tokens and money by the sums of `charges`; calls are counted when they begin."""
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


def estimate_untold(
    needs: CallNeeds, error: BaseException, *, was_asked: bool, output_bytes: int
) -> common_pb2.Usage | None:
    """Estimate the usage of a call that ended with `error`; None if no provider can have billed it.

    `was_asked` states whether the gateway had sent the request to a provider.
    """
    may_be_billed = isinstance(error, StreamStalled | BudgetExceeded) or bool(output_bytes)
    if isinstance(error, HeadraceError) and not may_be_billed and not was_broken_connection(error):
        return None  # the provider, or the gateway before it, refused
    return needs.estimate_usage(output_bytes) if was_asked else None
