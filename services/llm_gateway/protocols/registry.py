"""The protocols that providers speak, by the provider file's `protocol`."""

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
    """One way to ask a model over HTTP."""

    path: str
    """Appended to the provider's baseUrl."""

    build_headers: Callable[[str], Mapping[str, str]]
    """Takes the key; empty for a provider without keys."""

    build_body: Callable[[ChatRequest, Provider, Model], bytes]
    """The JSON body; raises InvalidRequest where the protocol cannot express the request."""

    make_reader: Callable[[str, str, Iterable[str], str, SendBytes], AnswerReader]
    """Takes the provider's key, the model, the conversation's tool-call ids, the secret to mask in errors, and the
    receiver of the deltas."""


PROTOCOLS: Mapping[str, WireProtocol] = {
    "openai": WireProtocol(openai_request.PATH, openai_request.build_headers, openai_request.build_body, OpenAiReader),
    "anthropic": WireProtocol(
        anthropic_request.PATH, anthropic_request.build_headers, anthropic_request.build_body, AnthropicReader
    ),
}
