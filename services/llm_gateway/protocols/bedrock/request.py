"""Converts a ChatRequest to the body of POST {baseUrl}/model/{model}/converse-stream.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.turns import BLANK_LINE, join_system_text
from services.llm_gateway.protocols.bedrock.messages import build_turns, lacks_thoughts
from services.llm_gateway.protocols.common.claude_thinking import build_thinking
from services.llm_gateway.protocols.common.output_format import DEFAULT_NAME, describe_form, has_form_in_words
from services.llm_gateway.protocols.common.request_rules import build_limits, check_tool_choice

if TYPE_CHECKING:
    from headrace.v1 import common_pb2, llm_pb2
    from services.llm_gateway.protocols.bedrock.messages import Turn
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/model/{model}/converse-stream"
HEADERS = {"Accept": "application/vnd.amazon.eventstream"}

OUTPUT_TOKENS_MAX = 8_192
"""Limit of an answer with thoughts, which have a part of it, where none is given."""

NO_CALL = "Answer without calling a tool."
"""In the place of the choice `none`, which Converse does not have."""

CACHE_POINT = {"cachePoint": {"type": "default"}}

CACHING = ("anthropic.claude", "amazon.nova")
"""In the names of models that take marks for the cache (docs, "Prompt caching"); others refuse them."""

NO_PARAMETERS = {"type": "object", "properties": {}}


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    turns = build_turns(request.messages, provider.key)
    config = build_limits(request, "temperature", "topP", "maxTokens")
    body: dict[str, Any] = {"messages": turns}
    instructions = [join_system_text(request.messages)]
    if has_form_in_words(request, model):
        instructions.append(describe_form(request.output_format))
    elif request.HasField("output_format"):
        body["outputConfig"] = {"textFormat": _build_format(request.output_format)}
    if request.tools and request.tool_choice == "none":
        instructions.append(NO_CALL)
    if text := BLANK_LINE.join(filter(None, instructions)):
        body["system"] = [{"text": text}]
    if tools := _build_tools(request):
        body["toolConfig"] = tools
    if "reasoning" in model.capabilities:
        limit = request.max_tokens or model.max_output or OUTPUT_TOKENS_MAX
        wish = _build_reasoning(request, provider, model, limit, turns)
        if "thinking" in wish:
            # Both are refused beside thoughts, whose budget is a part of the limit.
            config = {"maxTokens": limit}
        body |= {"additionalModelRequestFields": wish} if wish else {}
    if config:
        body["inferenceConfig"] = config
    if provider.prompt_cache and any(name in request.model for name in CACHING):
        _mark_cache(body)
    return body


def _build_format(wanted: common_pb2.OutputFormat) -> dict[str, Any]:
    schema: dict[str, Any] = {"schema": wanted.schema, "name": wanted.name or DEFAULT_NAME}
    if wanted.description:
        schema["description"] = wanted.description
    return {"type": "json_schema", "structure": {"jsonSchema": schema}}


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    specs: list[dict[str, Any]] = []
    for tool in request.tools:
        description = {"description": tool.description} if tool.description else {}
        schema = orjson.Fragment(tool.parameters) if tool.parameters else NO_PARAMETERS
        specs.append({"name": tool.name} | description | {"inputSchema": {"json": schema}})
    if not specs:
        # Calls in the conversation are refused without the tools.
        called = dict.fromkeys(call.name for message in request.messages for call in message.tool_calls)
        specs = [{"name": name, "inputSchema": {"json": NO_PARAMETERS}} for name in called]
    if not specs:
        return {}
    config: dict[str, Any] = {"tools": [{"toolSpec": spec} for spec in specs]}
    match request.tool_choice:
        case "" | "none" | "auto":
            pass
        case "required":
            config["toolChoice"] = {"any": {}}
        case name:
            check_tool_choice(request)
            config["toolChoice"] = {"tool": {"name": name}}
    return config


def _build_reasoning(
    request: llm_pb2.ChatRequest, provider: Provider, model: Model, limit: int, turns: list[Turn]
) -> dict[str, Any]:
    effort = request.reasoning.effort.lower() or "medium"
    if "claude" in request.model:
        return build_thinking(request, provider, model, limit, lacks_thoughts=lacks_thoughts(turns))
    if not request.reasoning.enabled:
        return {}
    if "nova" in request.model:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
    return {"reasoning_effort": effort} if "gpt-oss" in request.model else {}


def _mark_cache(body: dict[str, Any]) -> None:
    """Mark the ends of the instructions, which the tools stand before, and of the conversation."""
    if "system" in body:
        body["system"].append(CACHE_POINT)
    body["messages"][-1]["content"].append(CACHE_POINT)
