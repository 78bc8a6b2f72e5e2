"""Request rules common to several protocols: limits, the form of an answer in words, Claude's thoughts, turns.

Claude's thoughts: https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2, llm_pb2
from services.llm_gateway.fitting.fitted_request import FREE_CHOICES, list_unsupported
from services.llm_gateway.fitting.output_schemas import close_schema
from services.llm_gateway.providers.provider_file import Model, Provider

SETTINGS = frozenset({"generationConfig", "inferenceConfig", "additionalModelRequestFields"})
"""Objects that contain settings which other protocols have as fields of the body: extra fields are merged into them."""

THINKING_TOKENS = {"LOW": 1_024, "MEDIUM": 4_096, "HIGH": 16_384}

DEFAULT_NAME = "answer"

THINKING_TOKENS_MIN = 1_024
"""Minimum budget; smaller ones are refused."""

NO_THINKING: Final = {"type": "disabled"}

Block = dict[str, Any]
Turn = dict[str, Any]


def build_limits(request: llm_pb2.ChatRequest, temperature: str, top_p: str, max_tokens: str) -> dict[str, Any]:
    """Return the request's temperature, top_p and token limit, if set, under the protocol's names."""
    fields: dict[str, Any] = {}
    if request.HasField("temperature"):
        fields[temperature] = request.temperature
    if request.HasField("top_p"):
        fields[top_p] = request.top_p
    if request.HasField("max_tokens"):
        fields[max_tokens] = request.max_tokens
    return fields


def check_tool_choice(request: llm_pb2.ChatRequest) -> None:
    """Raise InvalidRequest if `tool_choice` names a tool that is not offered."""
    choice = request.tool_choice
    if choice not in {tool.name for tool in request.tools}:
        raise InvalidRequest.of("toolChoice", f"{choice!r} is neither none, auto, required nor an offered tool")


def replace_bad_arguments(text: str) -> str:
    """Return arguments that are JSON: some providers refuse the whole chat because of those of a cut answer."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}"
    return text


def merge_extra_body(body: dict[str, Any], provider: Provider, model: Model) -> dict[str, Any]:
    """Merge the extra fields of the provider and the model over ours; None removes a field."""
    merged = dict(body)
    for name, value in (*provider.extra_body.items(), *model.extra_body.items()):
        is_part = name in SETTINGS and isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged[name] | value if is_part else value
    return {name: value for name, value in merged.items() if value is not None}


def has_form_in_words(request: llm_pb2.ChatRequest, model: Model) -> bool:
    return request.HasField("output_format") and not model.keeps_to_schemas


def find_closed_schema(request: llm_pb2.ChatRequest, model: Model) -> str | None:
    """Return the schema for a provider that requires closed objects; None if the form must be described in words."""
    if not request.HasField("output_format") or not model.keeps_to_schemas:
        return None
    return close_schema(request.output_format.schema)


def describe_form(wanted: common_pb2.OutputFormat) -> str:
    about = f"The answer is {wanted.description}\n" if wanted.description else ""
    return f"{about}Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{wanted.schema}"


def is_any_object(wanted: common_pb2.OutputFormat) -> bool:
    return orjson.loads(wanted.schema) == {"type": "object"}


def build_thinking(
    request: llm_pb2.ChatRequest, provider: Provider, model: Model, max_tokens: int, *, lacks_thoughts: bool
) -> dict[str, Any]:
    """Return the thinking fields; empty without a reasoning request. With `lacks_thoughts`, results answer calls
    without thoughts, which is refused together with a budget: "Expected `thinking` or `redacted_thinking`, but found
    `tool_use`" (2025-08)."""
    reasoning, unsupported = request.reasoning, list_unsupported(provider, model, request.model)
    # A forced tool and thinking exclude each other; the caller's forced tool takes precedence.
    is_free = request.tool_choice in FREE_CHOICES
    enabled = reasoning.enabled and is_free
    is_requested = request.HasField("reasoning") and "reasoning" in model.capabilities
    if not is_requested and (is_free or "tool_choice_with_reasoning" not in unsupported):
        return {}
    if provider.reasoning == "adaptive" or "reasoning_budget" in unsupported:
        if not enabled:
            return {} if "reasoning_off" in unsupported else {"thinking": NO_THINKING}
        effort = {"output_config": {"effort": reasoning.effort.lower()}} if reasoning.effort else {}
        return {"thinking": {"type": "adaptive", "display": "summarized"}} | effort
    # Half of the limit is left for the answer.
    budget = min(THINKING_TOKENS[reasoning.effort or "MEDIUM"], max_tokens // 2)
    if not enabled or budget < THINKING_TOKENS_MIN or lacks_thoughts:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def join_turns(
    messages: Iterable[llm_pb2.Message], build_blocks: Callable[[llm_pb2.Message], list[Block]]
) -> list[Turn]:
    """Return the turns, without instructions, which have a separate field, and messages without blocks."""
    turns: list[Turn] = []
    for message in messages:
        if message.role == "system" or not (blocks := build_blocks(message)):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns
