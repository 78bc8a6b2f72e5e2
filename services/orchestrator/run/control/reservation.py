"""A part of a run's budget that is kept for a call, until the call's usage is known."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.peers.call_needs import CallNeeds

OUTPUT_TOKENS_MIN = 256
"""A shorter answer is not worth its prompt: the call is refused instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    tokens: int = 0

    cost_usd: float = 0.0
    """0 where no money is kept."""

    model_calls: int = 0
    """Calls beside the one that is counted already: of a tool, or further ones of a compaction."""

    output_tokens_max: int | None = None
    """Greatest answer that is paid for; None where money sets no limit."""

    model: str = ""
    """The model that is asked, as provider/model; empty for a tool's."""

    is_lowered: bool = False
    """Whether the answer may be shorter than the agent or the model would have it."""


def grant_output(needs: CallNeeds, left_usd: float) -> int:
    """Return the output tokens of a call that `left_usd` are for, 0 if too few.

    Beyond what is enough for an answer at most half of what is left is taken, so that others may work meanwhile.
    """
    if needs.rates is None or needs.cost_usd_max == 0:
        return needs.output_tokens_max
    affordable = int(
        min(needs.rates.count_affordable_output(left_usd, needs.input_tokens), needs.output_tokens_max * 2)
    )
    if affordable >= needs.output_tokens:
        return min(needs.output_tokens_max, max(needs.output_tokens, affordable // 2))
    return affordable if affordable >= min(OUTPUT_TOKENS_MIN, needs.output_tokens) else 0
