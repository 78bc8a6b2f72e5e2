"""Model descriptions from the gateway, and a context's limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.agents.definition import ModelConfig
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.runtime.rpc.call_ids import forward_metadata

log = structlog.get_logger()


async def get_model_info(peers: Peers, provider_key: str, model: str) -> llm_pb2.ModelInfo:
    """Return the description, with the name alone when the gateway does not answer."""
    try:
        found = await peers.models.get_or_ask((provider_key, model), partial(_list_models, peers, provider_key, model))
    except HeadraceError as error:
        # The turn that follows will say whether the gateway is there; memory has a table of its own.
        log.warning("model's limits not known", provider_key=provider_key, model=model, reason=error.reason)
        found = []
    info = llm_pb2.ModelInfo()
    if found:
        info.CopyFrom(found[0])
    info.provider_key, info.model = provider_key, model
    return info


async def _list_models(peers: Peers, provider_key: str, model: str) -> Sequence[llm_pb2.ModelInfo]:
    request = llm_pb2.ListModelsRequest(provider_key=provider_key, model=model)
    with translating_peer_errors():
        return (await peers.llm.ListModels(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())).models


async def agent_limits(peers: Peers, model: ModelConfig) -> tuple[memory_pb2.ModelLimits, str]:
    """Return the limits and the summary model, empty for the model itself."""
    info = await get_model_info(peers, model.provider_key or "", model.model or "")
    return make_limits(info, model.max_tokens or 0), info.summary_model


def make_limits(info: llm_pb2.ModelInfo, max_tokens: int = 0) -> memory_pb2.ModelLimits:
    """Limit the answer to `max_tokens`, or to the model's own maximum where it is 0."""
    return memory_pb2.ModelLimits(
        provider_key=info.provider_key,
        model=info.model,
        context_window_tokens=info.context_window_tokens,
        output_tokens=max_tokens or info.output_tokens_max,
    )
