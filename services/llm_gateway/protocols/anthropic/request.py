"""Converts a ChatRequest to the body of POST {baseUrl}/messages.

https://platform.claude.com/docs/en/api/messages (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.turns import join_system_text
from services.llm_gateway.protocols.anthropic.answer_blocks import THINKING
from services.llm_gateway.protocols.anthropic.cache_marks import mark_cache
from services.llm_gateway.protocols.anthropic.messages import Turn, build_turns
from services.llm_gateway.protocols.common.claude_thinking import build_thinking
from services.llm_gateway.protocols.common.output_format import describe_form, has_form_in_words
from services.llm_gateway.protocols.common.request_rules import check_tool_choice

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/messages"

VERSION = "2023-06-01"
"""The only version (2026-11)."""

OUTPUT_TOKENS_MAX = 8_192
"""Default of the required limit; every model since 2024 accepts it."""

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
        lacks_thoughts = _lacks_thoughts(conversation)
        body |= build_thinking(request, provider, model, body["max_tokens"], lacks_thoughts=lacks_thoughts)
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


def _lacks_thoughts(conversation: list[Turn]) -> bool:
    """Whether results answer calls without thinking blocks, as another provider's are."""
    results = conversation[-1]["content"] if conversation else []
    if len(conversation) < 2 or not any(block["type"] == "tool_result" for block in results):
        return False
    return conversation[-2]["content"][0]["type"] not in THINKING
