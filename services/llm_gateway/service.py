"""The handlers of LlmService."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from headrace.v1 import limits_pb2, llm_pb2, llm_pb2_grpc
from services.llm_gateway import provider_health
from services.llm_gateway.calls.embedding_caller import EmbeddingCaller
from services.llm_gateway.calls.model_caller import ModelCaller
from services.llm_gateway.provider_health import list_limits
from services.llm_gateway.providers.catalogue import Catalogue
from services.llm_gateway.providers.provider_file import Model, Price, Provider, find_window
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.push_stream import opening_sink
from services.runtime.tokens.count import ESTIMATE_ENCODING, ESTIMATE_RATIO, EncodingName, count_request, is_loaded
from services.runtime.tokens.model_table import known_facts

NAME = "headrace.v1.LlmService"

INLINE_BYTES_MAX = 4_096
"""Requests up to this size are counted on the event loop, in under 1 ms."""

_OURS: dict[str, EncodingName] = {name: name for name in get_args(EncodingName)}


class LlmService(llm_pb2_grpc.LlmServiceServicer):
    def __init__(self, catalogue: Catalogue, model_caller: ModelCaller) -> None:
        self._catalogue = catalogue
        self._model_caller = model_caller
        self._embedding_caller = EmbeddingCaller(model_caller)

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - it pushes its deltas
        async with opening_sink(context) as caller:
            return await self._model_caller.stream_chat(request, caller, context.time_remaining())

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Context) -> llm_pb2.EmbedResponse:
        return await self._embedding_caller.embed(request, context.time_remaining())

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Context) -> llm_pb2.ListModelsResponse:
        entries = self._catalogue.list_models(request.provider_key, request.model)
        return llm_pb2.ListModelsResponse(
            models=[
                _build_model_info(provider, model, self._catalogue.list_prices(provider, model))
                for provider, model in entries
            ]
        )

    async def ListProviders(
        self, request: llm_pb2.ListProvidersRequest, context: Context
    ) -> llm_pb2.ListProvidersResponse:
        self._catalogue.check_loaded()
        caller = self._model_caller
        return provider_health.list_providers(
            self._catalogue.providers, caller.accounts, caller.breakers, caller.refused_fields
        )

    async def ListLimits(
        self, request: limits_pb2.ListLimitsRequest, context: Context
    ) -> limits_pb2.ListLimitsResponse:
        caller = self._model_caller
        return list_limits(self._catalogue.providers, caller.accounts, caller.breakers)

    async def CountTokens(self, request: llm_pb2.CountTokensRequest, context: Context) -> llm_pb2.CountTokensResponse:
        _, model = self._catalogue.find_model(request.provider_key, request.model)
        return await count_tokens(request, model)


def _build_model_info(provider: Provider, model: Model, prices: Sequence[Price | None]) -> llm_pb2.ModelInfo:
    known = [price for price in prices if price is not None]
    are_known = len(known) == len(prices)
    return llm_pb2.ModelInfo(
        provider_key=provider.key,
        model=model.name,
        context_window_tokens=find_window(model),
        output_tokens_max=model.max_output,
        capabilities=model.capabilities,
        input_usd_per_mtok=model.price.input_per_m_tok if model.price else None,
        output_usd_per_mtok=model.price.output_per_m_tok if model.price else None,
        summary_model=provider.summary_model,
        input_usd_per_mtok_max=max(price.dearest_input_per_m_tok for price in known) if are_known else None,
        output_usd_per_mtok_max=max(price.output_per_m_tok for price in known) if are_known else None,
        encoding=choose_exact_encoding(model) or "",
        keeps_reasoning=provider.keeps_reasoning,
        is_simulated=provider.base_url == "env:SIMULATOR_URL",
    )


@dataclass(frozen=True, slots=True)
class TokenScale:
    encoding: EncodingName
    is_own: bool
    """False if the count is multiplied by ESTIMATE_RATIO."""


def choose_scale(model: Model) -> TokenScale:
    """Return the scale for `model`; it is exact if the encoding is in the model's file entry or the built-in table."""
    known = known_facts(model.name)
    named = _OURS.get(model.encoding or "") or (known.encoding if known else None)
    return TokenScale(named or ESTIMATE_ENCODING, named is not None)


def choose_exact_encoding(model: Model) -> EncodingName | None:
    scale = choose_scale(model)
    return scale.encoding if scale.is_own else None


async def count_tokens(request: llm_pb2.CountTokensRequest, model: Model) -> llm_pb2.CountTokensResponse:
    scale = choose_scale(model)
    if is_loaded(scale.encoding) and request.ByteSize() <= INLINE_BYTES_MAX:
        tokens = count_request(request.messages, request.tools, scale.encoding)
    else:
        tokens = await asyncio.to_thread(count_request, request.messages, request.tools, scale.encoding)
    if not scale.is_own:
        tokens = math.ceil(tokens * ESTIMATE_RATIO)
    return llm_pb2.CountTokensResponse(tokens=tokens, estimated=not scale.is_own)
