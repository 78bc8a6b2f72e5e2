"""Rules of a request that hold for every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

THINKING_TOKENS = {"LOW": 1_024, "MEDIUM": 4_096, "HIGH": 16_384}


def check_tool_choice(request: llm_pb2.ChatRequest) -> None:
    """Raise InvalidRequest when `tool_choice` names a tool that is not offered."""
    choice = request.tool_choice
    if choice not in {tool.name for tool in request.tools}:
        raise InvalidRequest.of("toolChoice", f"{choice!r} is neither none, auto, required nor an offered tool")


def replace_bad_arguments(text: str) -> str:
    """Return arguments that are JSON: some providers refuse the whole chat for those of an answer that was cut."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}"
    return text


def merge_extra_body(body: dict[str, Any], provider: Provider, model: Model) -> dict[str, Any]:
    """Put the provider's and the model's further fields over ours; None takes a field away."""
    merged = body | provider.extra_body | model.extra_body
    return {name: value for name, value in merged.items() if value is not None}
