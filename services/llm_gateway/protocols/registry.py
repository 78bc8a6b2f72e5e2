"""The protocols by the provider file's `protocol`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.llm_gateway.protocols.anthropic import request as anthropic_request
from services.llm_gateway.protocols.anthropic.reader import AnthropicReader
from services.llm_gateway.protocols.openai import request as openai_request
from services.llm_gateway.protocols.openai.reader import OpenAiReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.v1.llm_pb2 import ChatRequest
    from services.llm_gateway.protocols.common.answer_reader import AnswerReader, SendBytes
    from services.llm_gateway.providers.provider_file import Model, Provider


@dataclass(frozen=True, slots=True)
class WireProtocol:
    path: str

    build_headers: Callable[[str], Mapping[str, str]]
    """Takes the key, empty for a provider without keys."""

    build_body: Callable[[ChatRequest, Provider, Model], bytes]
    """Builds the JSON body; InvalidRequest where the protocol cannot express the request."""

    make_reader: Callable[[str, str, Iterable[str], str, SendBytes], AnswerReader]
    """Takes provider key, model, the conversation's call ids, the secret to mask, and the receiver of deltas."""


PROTOCOLS: Mapping[str, WireProtocol] = {
    "openai": WireProtocol(openai_request.PATH, openai_request.build_headers, openai_request.build_body, OpenAiReader),
    "anthropic": WireProtocol(
        anthropic_request.PATH, anthropic_request.build_headers, anthropic_request.build_body, AnthropicReader
    ),
}
