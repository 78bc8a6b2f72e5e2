"""The tokens and the money that a model call may need at most."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.v1 import common_pb2, llm_pb2
from services.runtime.tokens import model_table
from services.runtime.usage import Rates

OUTPUT_TOKENS = 4096
"""Reserved when the agent sets no max_tokens; few answers are longer."""

BYTES_PER_TOKEN = 3
"""This is right for Chinese and too low for English, so that an estimate is never much too small."""


@dataclass(frozen=True, slots=True)
class CallNeeds:
    model: str
    """The model, as provider/model."""

    input_tokens: int

    output_tokens: int
    """Enough for the answer, as far as can be known: the agent's max_tokens, or OUTPUT_TOKENS."""

    output_tokens_max: int
    """Greatest answer: the agent's max_tokens, or what the model can write."""

    rates: Rates | None
    """None where the price of the model, or of one it may fall back to, is not known."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd_max(self) -> float:
        """Cost of the greatest answer; 0 without a price."""
        return 0.0 if self.rates is None else self.rates.count_cost(self.input_tokens, self.output_tokens_max)

    def multiply(self, calls: int) -> CallNeeds:
        """Return the needs of so many calls like this one."""
        return replace(
            self,
            input_tokens=calls * self.input_tokens,
            output_tokens=calls * self.output_tokens,
            output_tokens_max=calls * self.output_tokens_max,
        )

    def add_price(self, usage: common_pb2.Usage) -> None:
        """Put the greatest cost to an estimate that another service made, which knows no prices."""
        if usage.estimated and not usage.HasField("cost_usd") and self.rates is not None:
            usage.cost_usd = self.rates.count_cost(usage.input_tokens, usage.output_tokens)

    def estimate_usage(self, output_bytes: int = 0) -> common_pb2.Usage:
        """Estimate what a call has cost that ended before it said so."""
        output_tokens = estimate_tokens(output_bytes)
        usage = common_pb2.Usage(input_tokens=self.input_tokens, output_tokens=output_tokens, estimated=True)
        if self.rates is not None:
            usage.cost_usd = self.rates.count_cost(self.input_tokens, output_tokens)
        return usage


def make_needs(
    info: llm_pb2.ModelInfo, input_tokens: int, max_tokens: int | None = None, usual_tokens: int = OUTPUT_TOKENS
) -> CallNeeds:
    """Return a call's needs; without `max_tokens` an answer is expected to have at most `usual_tokens`."""
    known = model_table.known_facts(info.model) or model_table.UNKNOWN
    answer_tokens_max = max_tokens or info.output_tokens_max or known.max_output
    rates = None
    if info.HasField("input_usd_per_mtok_max") and info.HasField("output_usd_per_mtok_max"):
        rates = Rates(info.input_usd_per_mtok_max, info.output_usd_per_mtok_max)
    return CallNeeds(
        model=f"{info.provider_key}/{info.model}",
        input_tokens=input_tokens,
        output_tokens=max_tokens or min(usual_tokens, answer_tokens_max),
        output_tokens_max=answer_tokens_max,
        rates=rates,
    )


def estimate_tokens(size_bytes: int) -> int:
    return -(-size_bytes // BYTES_PER_TOKEN)
