"""Model descriptions from the gateway, and a context's limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from headrace.errors import HeadraceError, ProviderUnavailable
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition, ModelConfig
from services.orchestrator.peers.call_needs import OUTPUT_TOKENS, CallNeeds, make_needs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import translating_peer_errors

log = structlog.get_logger()


async def get_model_info(peers: Peers, provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the description, with the name alone when the gateway does not answer."""
    try:
        found = await peers.models.get_or_ask((provider_key, model), partial(_list_models, peers, provider_key, model))
    except HeadraceError as error:
        # The turn that follows will say whether the gateway is there; memory has a table of its own.
        log.warning("model's limits not known", provider_key=provider_key, model=model, reason=error.reason)
        found = []
    return _name_model(found, provider_key, model)


async def measure_needs(
    peers: Peers, model: ModelConfig, input_tokens: int, *, is_priced: bool, usual_tokens: int = OUTPUT_TOKENS
) -> CallNeeds:
    """Return the needs of a call beside the turns; the gateway is asked only for a price that the run needs.

    Raises:
        HeadraceError: The gateway does not answer.
    """
    provider_key, name = model.provider_key or "", model.model or ""
    info = await get_priced_model(peers, provider_key, name) if is_priced else _name_model([], provider_key, name)
    return make_needs(info, input_tokens, model.max_tokens, usual_tokens)


async def get_priced_model(peers: Peers, provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the description, for a call that may not be made without its price.

    Raises:
        HeadraceError: The gateway does not answer, nor when it is back.
    """
    ask = partial(_list_models, peers, provider_key, model)
    try:
        found = await peers.models.get_or_ask((provider_key, model), ask)
    except ProviderUnavailable:
        await peers.wait_for_gateway()
        found = await peers.models.get_or_ask((provider_key, model), ask)
    return _name_model(found, provider_key, model)


def _name_model(found: Sequence[llm_pb2.ModelInfo], provider_key: str, model: str) -> llm_pb2.ModelInfo:
    info = llm_pb2.ModelInfo()
    if found:
        info.CopyFrom(found[0])
    info.provider_key, info.model = provider_key, model
    return info


async def _list_models(peers: Peers, provider_key: str, model: str) -> Sequence[llm_pb2.ModelInfo]:
    request = llm_pb2.ListModelsRequest(provider_key=provider_key, model=model)
    with translating_peer_errors():
        return (await peers.llm.ListModels(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())).models


async def list_capabilities(peers: Peers, agent: Definition) -> list[Sequence[str]]:
    """Return those of each model that the agent's stages ask; empty where they are not known."""
    models = {(stage.model.provider_key or "", stage.model.model or "") for stage in agent.stages}
    return [(await get_model_info(peers, *names)).capabilities for names in sorted(models)]


def make_limits(info: llm_pb2.ModelInfo, max_tokens: int = 0) -> memory_pb2.ModelLimits:
    """Limit the answer to `max_tokens`, or to the model's own maximum where it is 0."""
    return memory_pb2.ModelLimits(
        provider_key=info.provider_key,
        model=info.model,
        context_window_tokens=info.context_window_tokens,
        output_tokens=max_tokens or info.output_tokens_max,
        capabilities=info.capabilities,
        encoding=info.encoding,
        keeps_reasoning=info.keeps_reasoning,
    )
