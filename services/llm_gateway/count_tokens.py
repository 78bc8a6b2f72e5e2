"""Chooses the encoding that counts a model's tokens."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from headrace.v1 import llm_pb2
from services.runtime.tokens.count import ESTIMATE_ENCODING, ESTIMATE_RATIO, count_request
from services.runtime.tokens.encodings import EncodingName, is_loaded
from services.runtime.tokens.model_table import known_facts

if TYPE_CHECKING:
    from services.llm_gateway.providers.provider_file import Model

INLINE_BYTES_MAX = 4_096
"""Requests up to this size are counted on the event loop, in under 1 ms."""

_OURS: dict[str, EncodingName] = {name: name for name in get_args(EncodingName)}


@dataclass(frozen=True, slots=True)
class TokenScale:
    encoding: EncodingName
    is_own: bool
    """False when the count is multiplied by ESTIMATE_RATIO."""


def choose_scale(model: Model) -> TokenScale:
    """Choose the scale for `model`: the encoding of its file entry, or else of the built-in table, is exact."""
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
