"""Converts a ChatRequest to the body of POST {baseUrl}/models/{model}:streamGenerateContent.

https://ai.google.dev/api/generate-content (2026-11).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.turns import BLANK_LINE, join_system_text
from services.llm_gateway.protocols.common.output_format import describe_form, has_form_in_words
from services.llm_gateway.protocols.common.request_rules import THINKING_TOKENS, build_limits, check_tool_choice
from services.llm_gateway.protocols.gemini.contents import build_contents

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/models/{model}:streamGenerateContent"
QUERY = {"alt": "sse"}
KEY_HEADER = "x-goog-api-key"

DYNAMIC_BUDGET = -1

_MODES = {"none": "NONE", "auto": "AUTO", "required": "ANY"}

_BEFORE_GEMINI_3 = re.compile(r"gemini-[12]\b")


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    is_older = _BEFORE_GEMINI_3.match(request.model) is not None
    body: dict[str, Any] = {"contents": build_contents(request.messages, provider.key, wants_signatures=not is_older)}
    config: dict[str, Any] = {}
    instructions = [join_system_text(request.messages)]
    # Older models take no form of answers beside functions.
    if has_form_in_words(request, model) or (request.HasField("output_format") and request.tools and is_older):
        instructions.append(describe_form(request.output_format))
    elif request.HasField("output_format"):
        form = orjson.Fragment(request.output_format.schema)
        config |= {"responseMimeType": "application/json", "responseJsonSchema": form}
    if text := BLANK_LINE.join(filter(None, instructions)):
        body["systemInstruction"] = {"parts": [{"text": text}]}
    if request.tools:
        body |= _build_tools(request)
    config |= build_limits(request, "temperature", "topP", "maxOutputTokens")
    if "reasoning" in model.capabilities and request.HasField("reasoning"):
        config |= _build_thinking(request, is_older=is_older)
    return body | ({"generationConfig": config} if config else {})


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    declarations: list[dict[str, Any]] = []
    for tool in request.tools:
        parameters = {"parametersJsonSchema": orjson.Fragment(tool.parameters)} if tool.parameters else {}
        declarations.append({"name": tool.name, "description": tool.description} | parameters)
    fields: dict[str, Any] = {"tools": [{"functionDeclarations": declarations}]}
    if choice := request.tool_choice:
        config: dict[str, Any] = {"mode": _MODES.get(choice, "ANY")}
        if choice not in _MODES:
            check_tool_choice(request)
            config["allowedFunctionNames"] = [choice]
        fields["toolConfig"] = {"functionCallingConfig": config}
    return fields


def _build_thinking(request: llm_pb2.ChatRequest, *, is_older: bool) -> dict[str, Any]:
    reasoning = request.reasoning
    if not reasoning.enabled:
        # The others refuse to do without, or do so unless they are asked.
        return {"thinkingConfig": {"thinkingBudget": 0}} if request.model.startswith("gemini-2.5-flash") else {}
    wish: dict[str, Any] = {"includeThoughts": True}
    if is_older:
        wish["thinkingBudget"] = THINKING_TOKENS.get(reasoning.effort, DYNAMIC_BUDGET)
    elif reasoning.effort:
        wish["thinkingLevel"] = reasoning.effort.lower()
    return {"thinkingConfig": wish}
