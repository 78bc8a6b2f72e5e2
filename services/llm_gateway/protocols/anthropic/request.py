"""Converts a ChatRequest to the body of POST {baseUrl}/messages.

https://platform.claude.com/docs/en/api/messages (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.turns import join_system_text
from services.llm_gateway.fitting.unsupported import FREE_CHOICES, list_unsupported
from services.llm_gateway.protocols.anthropic.answer_blocks import THINKING
from services.llm_gateway.protocols.anthropic.cache_marks import mark_cache
from services.llm_gateway.protocols.anthropic.messages import Turn, build_turns
from services.llm_gateway.protocols.common.output_format import describe_form, has_form_in_words
from services.llm_gateway.protocols.common.request_rules import THINKING_TOKENS, check_tool_choice

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/messages"

VERSION = "2023-06-01"
"""The only version (2026-11)."""

OUTPUT_TOKENS_MAX = 8_192
"""Default of the required limit; every model since 2024 accepts it."""

THINKING_TOKENS_MIN = 1_024
"""Smaller thinking budgets are refused."""

TOP_P_MIN_THINKING = 0.95
"""Smaller values are refused with thinking."""


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    conversation = build_turns(request.messages, provider.key)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or model.max_output or OUTPUT_TOKENS_MAX,
        "messages": conversation,
        "stream": True,
    }
    system = join_system_text(request.messages)
    if has_form_in_words(request, model):
        system = "\n\n".join(filter(None, (system, describe_form(request.output_format))))
    if system:
        body["system"] = system
    if request.tools:
        body |= _build_tools(request)
    if "reasoning" in model.capabilities:
        body |= _build_thinking(request, provider, model, body["max_tokens"], conversation)
    if request.HasField("output_format") and model.keeps_to_schemas:
        form = {"type": "json_schema", "schema": orjson.Fragment(request.output_format.schema)}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    # Both at once are refused by models since Claude 4.5, and a temperature beside thinking by all.
    thinks = "thinking" in body
    if request.HasField("temperature") and not thinks:
        body["temperature"] = min(request.temperature, 1.0)
    elif request.HasField("top_p") and (not thinks or request.top_p >= TOP_P_MIN_THINKING):
        body["top_p"] = request.top_p
    if provider.prompt_cache:
        mark_cache(body)
    return body


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for tool in request.tools:
        schema = orjson.Fragment(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
        description = {"description": tool.description} if tool.description else {}
        tools.append({"name": tool.name} | description | {"input_schema": schema})
    choice: dict[str, Any] = {}
    match request.tool_choice:
        case "":
            pass
        case "none" | "auto":
            choice = {"type": request.tool_choice}
        case "required":
            choice = {"type": "any"}
        case name:
            check_tool_choice(request)
            choice = {"type": "tool", "name": name}
    if request.HasField("parallel_tool_calls") and request.tool_choice != "none":
        choice = {"type": "auto"} | choice | {"disable_parallel_tool_use": not request.parallel_tool_calls}
    return {"tools": tools} | ({"tool_choice": choice} if choice else {})


def _build_thinking(
    request: llm_pb2.ChatRequest, provider: Provider, model: Model, max_tokens: int, conversation: list[Turn]
) -> dict[str, Any]:
    reasoning = request.reasoning
    if not request.HasField("reasoning"):
        return {}
    # A forced tool and thinking exclude each other; the tool is what the caller insists on.
    enabled = reasoning.enabled and request.tool_choice in FREE_CHOICES
    unsupported = list_unsupported(provider, model, request.model)
    if provider.reasoning == "adaptive" or "reasoning_budget" in unsupported:
        if not enabled:
            return {} if "reasoning_off" in unsupported else {"thinking": {"type": "disabled"}}
        effort = {"output_config": {"effort": reasoning.effort.lower()}} if reasoning.effort else {}
        return {"thinking": {"type": "adaptive", "display": "summarized"}} | effort
    # Half of the limit is left for the answer.
    budget = min(THINKING_TOKENS[reasoning.effort or "MEDIUM"], max_tokens // 2)
    if not enabled or budget < THINKING_TOKENS_MIN or _lacks_thoughts(conversation):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _lacks_thoughts(conversation: list[Turn]) -> bool:
    """Whether results answer calls without thinking blocks, as another provider's are.

    With thinking on, that is refused: "Expected `thinking` or `redacted_thinking`, but found `tool_use`" (2025-08).
    """
    results = conversation[-1]["content"] if conversation else []
    if len(conversation) < 2 or not any(block["type"] == "tool_result" for block in results):
        return False
    return conversation[-2]["content"][0]["type"] not in THINKING
