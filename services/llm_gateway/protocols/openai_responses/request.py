"""Converts a ChatRequest to the body of POST {baseUrl}/responses.

https://developers.openai.com/api/reference/resources/responses/methods/create (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.fitted_request import CHOICES
from services.llm_gateway.fitting.turns import BLANK_LINE, join_system_text
from services.llm_gateway.protocols.common.output_format import (
    DEFAULT_NAME,
    describe_form,
    has_form_in_words,
    is_any_object,
)
from services.llm_gateway.protocols.common.request_rules import build_limits, check_tool_choice
from services.llm_gateway.protocols.openai_responses.input_items import build_input

if TYPE_CHECKING:
    from headrace.v1 import common_pb2, llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/responses"

LIMIT = "max_output_tokens"

OUTPUT_TOKENS_MIN = 16
"""A smaller limit is refused."""

NO_PARAMETERS = {"type": "object", "properties": {}}


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "input": build_input(request.messages, provider.key),
        "stream": True,
        "store": False,
    }
    instructions = [join_system_text(request.messages)]
    if has_form_in_words(request, model):
        instructions.append(describe_form(request.output_format))
    elif request.HasField("output_format"):
        body["text"] = {"format": _build_format(request.output_format)}
    if text := BLANK_LINE.join(filter(None, instructions)):
        body["instructions"] = text
    if request.tools:
        body |= _build_tools(request)
    body |= build_limits(request, "temperature", "top_p", LIMIT)
    if LIMIT in body:
        body[LIMIT] = max(body[LIMIT], OUTPUT_TOKENS_MIN)
    if "reasoning" in model.capabilities:
        # Without a state there, the model sees its thoughts again only if we keep them.
        body["include"] = ["reasoning.encrypted_content"]
        if request.reasoning.enabled:
            effort = {"effort": request.reasoning.effort.lower()} if request.reasoning.effort else {}
            body["reasoning"] = effort | {"summary": "auto"}
    return body


def _build_format(wanted: common_pb2.OutputFormat) -> dict[str, Any]:
    if is_any_object(wanted):
        return {"type": "json_object"}
    form: dict[str, Any] = {"type": "json_schema", "name": wanted.name or DEFAULT_NAME}
    if wanted.description:
        form["description"] = wanted.description
    if wanted.HasField("strict"):
        form["strict"] = wanted.strict
    return form | {"schema": orjson.Fragment(wanted.schema)}


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": orjson.Fragment(tool.parameters) if tool.parameters else NO_PARAMETERS,
                # Left out, it means true.
                "strict": False,
            }
            for tool in request.tools
        ]
    }
    if choice := request.tool_choice:
        fields["tool_choice"] = choice
    if choice not in CHOICES:
        check_tool_choice(request)
        fields["tool_choice"] = {"type": "function", "name": choice}
    if request.HasField("parallel_tool_calls"):
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields
