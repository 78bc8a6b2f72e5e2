"""Rules of a request that hold for every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

SETTINGS = frozenset({"generationConfig", "inferenceConfig", "additionalModelRequestFields"})
"""Objects that hold what other protocols have as fields of the body: further fields join those that are there."""

THINKING_TOKENS = {"LOW": 1_024, "MEDIUM": 4_096, "HIGH": 16_384}


def build_limits(request: llm_pb2.ChatRequest, temperature: str, top_p: str, max_tokens: str) -> dict[str, Any]:
    """Return what is set of temperature, top_p and the limit of tokens, under the protocol's names."""
    fields: dict[str, Any] = {}
    if request.HasField("temperature"):
        fields[temperature] = request.temperature
    if request.HasField("top_p"):
        fields[top_p] = request.top_p
    if request.HasField("max_tokens"):
        fields[max_tokens] = request.max_tokens
    return fields


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
    merged = dict(body)
    for name, value in (*provider.extra_body.items(), *model.extra_body.items()):
        is_part = name in SETTINGS and isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged[name] | value if is_part else value
    return {name: value for name, value in merged.items() if value is not None}
