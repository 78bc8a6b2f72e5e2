"""The protocols by the provider file's `protocol`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.v1.llm_pb2 import ChatRequest
from services.llm_gateway.protocols.anthropic import request as anthropic_request
from services.llm_gateway.protocols.anthropic.reader import AnthropicReader
from services.llm_gateway.protocols.bedrock import request as bedrock_request
from services.llm_gateway.protocols.bedrock.reader import BedrockReader
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, SendBytes
from services.llm_gateway.protocols.gemini import request as gemini_request
from services.llm_gateway.protocols.gemini.reader import GeminiReader
from services.llm_gateway.protocols.openai import request as openai_request
from services.llm_gateway.protocols.openai.reader import OpenAiReader
from services.llm_gateway.protocols.openai_responses import request as responses_request
from services.llm_gateway.protocols.openai_responses.reader import ResponsesReader
from services.llm_gateway.providers.provider_file import Model, Provider


@dataclass(frozen=True, slots=True)
class WireProtocol:
    path: str
    """Path after `baseUrl`; `{model}` is replaced by the model's name."""

    key_header: str
    headers: Mapping[str, str]

    media: frozenset[str]
    """Kinds of parts other than text that a request may have."""

    build_body: Callable[[ChatRequest, Provider, Model], dict[str, Any]]
    """Builds the body for orjson; InvalidRequest if the protocol cannot express the request."""

    make_reader: Callable[[AnswerSource, SendBytes], AnswerReader]
    """Receives the answer's source and the receiver of deltas."""

    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters of each request's address."""

    results_hold_media: bool = False
    """Whether a tool's result may have images and files; otherwise they are moved to a user's message after it."""

    def build_headers(self, provider: Provider, key: str) -> dict[str, str]:
        """Return the protocol's headers and the key in the header that the provider requires; no key if it is empty."""
        headers = {**self.headers}
        if key:
            name = provider.key_header or self.key_header
            scheme = "Bearer" if name.lower() == "authorization" else ""
            if provider.key_scheme is not None:
                scheme = provider.key_scheme
            headers[name] = f"{scheme} {key}".lstrip()
        return headers


PROTOCOLS: Mapping[str, WireProtocol] = {
    "openai": WireProtocol(
        openai_request.PATH,
        "Authorization",
        {},
        frozenset({"image", "audio", "file"}),
        openai_request.build_body,
        OpenAiReader,
    ),
    "openai_responses": WireProtocol(
        responses_request.PATH,
        "Authorization",
        {},
        frozenset({"image", "file"}),
        responses_request.build_body,
        ResponsesReader,
        results_hold_media=True,
    ),
    "gemini": WireProtocol(
        gemini_request.PATH,
        gemini_request.KEY_HEADER,
        {},
        frozenset({"image", "audio", "file"}),
        gemini_request.build_body,
        GeminiReader,
        query=gemini_request.QUERY,
    ),
    "bedrock": WireProtocol(
        bedrock_request.PATH,
        "Authorization",
        bedrock_request.HEADERS,
        frozenset({"image", "file"}),
        bedrock_request.build_body,
        BedrockReader,
        results_hold_media=True,
    ),
    "anthropic": WireProtocol(
        anthropic_request.PATH,
        "x-api-key",
        {"anthropic-version": anthropic_request.VERSION},
        frozenset({"image", "file"}),
        anthropic_request.build_body,
        AnthropicReader,
        results_hold_media=True,
    ),
}
