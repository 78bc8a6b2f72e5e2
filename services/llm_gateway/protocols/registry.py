"""The protocols that providers speak: what each puts on the wire, and who reads what comes back.

A new protocol is a request file, an answer file and one line of PROTOCOLS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.llm_gateway.protocols.anthropic import request as anthropic_request
from services.llm_gateway.protocols.anthropic.answer import AnthropicAnswer
from services.llm_gateway.protocols.openai import request as openai_request
from services.llm_gateway.protocols.openai.answer import OpenAiAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.v1.llm_pb2 import ChatRequest
    from services.llm_gateway.protocols.common.answer import Answer, Give
    from services.llm_gateway.providers.provider_file import Model, Provider


@dataclass(frozen=True, slots=True)
class WireProtocol:
    """One way to ask a model over HTTP."""

    path: str
    """What follows the provider's baseUrl."""

    headers: Callable[[str], Mapping[str, str]]
    """The headers that go with a key; an empty key is none."""

    request_body: Callable[[ChatRequest, Provider, Model], bytes]
    """The JSON body; InvalidRequest where the request cannot be said in this protocol."""

    answer: Callable[[str, str, Iterable[str], str, Give], Answer]
    """Made of the provider's key, the model, the conversation's tool-call ids, the secret to mask in errors, and where
    its deltas go."""


PROTOCOLS: Mapping[str, WireProtocol] = {
    "openai": WireProtocol(openai_request.PATH, openai_request.headers, openai_request.request_body, OpenAiAnswer),
    "anthropic": WireProtocol(
        anthropic_request.PATH, anthropic_request.headers, anthropic_request.request_body, AnthropicAnswer
    ),
}
"""By the provider file's `protocol`."""
