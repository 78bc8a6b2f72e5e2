"""The gateway's descriptions of models: context limits, and the tokens and money that a call may need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from headrace.errors import HeadraceError, ProviderUnavailable
from headrace.v1 import common_pb2, llm_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition, ModelConfig
from services.orchestrator.peers.stubs import Peers
from services.runtime.tokens import model_table
from services.runtime.usage import Rates

log = structlog.get_logger()


OUTPUT_TOKENS = 4096
"""Output tokens reserved if the agent sets no max_tokens; few answers are longer."""

BYTES_PER_TOKEN = 3
"""Accurate for Chinese and low for English, so an estimate is never much too small."""


@dataclass(frozen=True, slots=True)
class CallNeeds:
    model: str
    """The model, as provider/model."""

    input_tokens: int

    output_tokens: int
    """Expected maximum of the answer: the agent's max_tokens, or OUTPUT_TOKENS."""

    output_tokens_max: int
    """Upper bound of the answer: the agent's max_tokens, or the model's maximum output."""

    rates: Rates | None
    """None if the price of the model, or of a fallback, is unknown."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd_max(self) -> float:
        """Cost of the longest answer in US dollars; 0 without a price."""
        return 0.0 if self.rates is None else self.rates.count_cost(self.input_tokens, self.output_tokens_max)

    def multiply(self, calls: int) -> CallNeeds:
        """Return the needs of this many calls like this one."""
        return replace(
            self,
            input_tokens=calls * self.input_tokens,
            output_tokens=calls * self.output_tokens,
            output_tokens_max=calls * self.output_tokens_max,
        )

    def add_price(self, usage: common_pb2.Usage) -> None:
        """Add the maximum cost to an estimate from another service, which does not know prices."""
        if usage.estimated and not usage.HasField("cost_usd") and self.rates is not None:
            usage.cost_usd = self.rates.count_cost(usage.input_tokens, usage.output_tokens)

    def estimate_usage(self, output_bytes: int = 0) -> common_pb2.Usage:
        """Estimate the usage of a call that ended before reporting it."""
        output_tokens = estimate_tokens(output_bytes)
        usage = common_pb2.Usage(input_tokens=self.input_tokens, output_tokens=output_tokens, estimated=True)
        if self.rates is not None:
            usage.cost_usd = self.rates.count_cost(self.input_tokens, output_tokens)
        return usage


def make_needs(
    info: llm_pb2.ModelInfo, input_tokens: int, max_tokens: int | None = None, usual_tokens: int = OUTPUT_TOKENS
) -> CallNeeds:
    """Return a call's needs; without `max_tokens` its expected output is at most `usual_tokens`."""
    answer_tokens_max = max_tokens or info.output_tokens_max
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


async def get_model_info(peers: Peers, provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the model's description; the built-in table supplies limits that the gateway does not know."""
    try:
        found = await peers.models.get_or_ask((provider_key, model), partial(_list_models, peers, provider_key, model))
    except HeadraceError as error:
        # The next turn will show whether the gateway is up; memory has its own table.
        log.warning("model's limits not known", provider_key=provider_key, model=model, reason=error.reason)
        found = []
    return _name_model(found, provider_key, model)


async def measure_needs(
    peers: Peers, model: ModelConfig, input_tokens: int, *, is_priced: bool, usual_tokens: int = OUTPUT_TOKENS
) -> CallNeeds:
    """Return the needs of a side call; the gateway is asked only if the run needs the price.

    Raises:
        HeadraceError: The gateway does not answer.
    """
    provider_key, name = model.provider_key or "", model.model or ""
    info = await get_priced_model(peers, provider_key, name) if is_priced else _name_model([], provider_key, name)
    return make_needs(info, input_tokens, model.max_tokens, usual_tokens)


async def get_priced_model(peers: Peers, provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the description for a call that must have a price.

    Raises:
        HeadraceError: The gateway does not answer, even after waiting for it.
    """
    ask = partial(_list_models, peers, provider_key, model)
    try:
        found = await peers.models.get_or_ask((provider_key, model), ask)
    except ProviderUnavailable:
        await peers.wait_for_gateway()
        found = await peers.models.get_or_ask((provider_key, model), ask)
    return _name_model(found, provider_key, model)


def _name_model(found: Sequence[llm_pb2.ModelInfo], provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the description, with missing limits from the built-in table, or else the smallest in use."""
    info = llm_pb2.ModelInfo()
    if found:
        info.CopyFrom(found[0])
    info.provider_key, info.model = provider_key, model
    known = model_table.known_facts(model) or model_table.UNKNOWN
    info.context_window_tokens = model_table.find_window(model, info.context_window_tokens)
    info.output_tokens_max = info.output_tokens_max or known.max_output
    return info


async def _list_models(peers: Peers, provider_key: str, model: str) -> Sequence[llm_pb2.ModelInfo]:
    request = llm_pb2.ListModelsRequest(provider_key=provider_key, model=model)
    return (await peers.llm.ListModels(request)).models


async def list_capabilities(peers: Peers, agent: Definition) -> list[Sequence[str]]:
    """Return the capabilities of each model that the agent's stages use; empty if unknown."""
    models = {(stage.model.provider_key or "", stage.model.model or "") for stage in agent.stages}
    return [(await get_model_info(peers, *names)).capabilities for names in sorted(models)]


def make_limits(info: llm_pb2.ModelInfo, max_tokens: int = 0) -> memory_pb2.ModelLimits:
    """Return limits with `max_tokens` for the answer, or the model's maximum if it is 0."""
    return memory_pb2.ModelLimits(
        provider_key=info.provider_key,
        model=info.model,
        context_window_tokens=info.context_window_tokens,
        output_tokens=max_tokens or info.output_tokens_max,
        capabilities=info.capabilities,
        encoding=info.encoding,
        keeps_reasoning=info.keeps_reasoning,
    )
