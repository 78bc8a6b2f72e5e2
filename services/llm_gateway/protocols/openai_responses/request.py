"""Converts a ChatRequest to the body of POST {baseUrl}/responses.

An answer is sent back as its original items, in order.
https://developers.openai.com/api/reference/resources/responses/methods/create (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from headrace.v1 import common_pb2, llm_pb2
from services.llm_gateway.fitting.fitted_request import CHOICES
from services.llm_gateway.fitting.provider_state import order_blocks, unpack_state
from services.llm_gateway.fitting.turns import BLANK_LINE, is_media, join_parts, join_system_text
from services.llm_gateway.protocols.common.media import get_file_name, make_url
from services.llm_gateway.protocols.common.request_rules import (
    DEFAULT_NAME,
    build_limits,
    check_tool_choice,
    describe_form,
    has_form_in_words,
    is_any_object,
    replace_bad_arguments,
)
from services.llm_gateway.protocols.openai_responses.reader import KIND, REASONING
from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/responses"

LIMIT = "max_output_tokens"

ID_CHARS_MAX = 64
"""Maximum length of an item's id. GitHub Copilot and Codex give longer ones, which they refuse afterwards
(https://github.com/can1357/oh-my-pi/issues/284, 2026-03); items may have none."""

OUTPUT_TOKENS_MIN = 16
"""Minimum limit; a smaller one is refused."""

NO_PARAMETERS = {"type": "object", "properties": {}}

Item = dict[str, Any]


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
        # Without state at the provider, the model sees its earlier thoughts only if we keep them.
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
                # The default is true.
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


def build_input(messages: Iterable[llm_pb2.Message], provider: str) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        match message.role:
            case "user":
                items.append({"role": "user", "content": _build_content(message)})
            case "tool":
                output = {"call_id": message.tool_call_id, "output": _build_content(message)}
                items.append({"type": "function_call_output"} | output)
            case "assistant":
                items += _build_answer(message, provider)
            case _:
                pass  # instructions have a separate field
    return items


def _build_answer(message: llm_pb2.Message, provider: str) -> list[Item]:
    calls: list[Item] = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": replace_bad_arguments(call.arguments),
        }
        for call in message.tool_calls
    ]
    kept = unpack_state(message.provider_state, provider, KIND)
    if any(len(str(item.get("id", ""))) > ID_CHARS_MAX for item in kept):
        kept = [{name: value for name, value in item.items() if name != "id"} for item in kept]

    def fill_message(item: Item, text: str) -> Item | None:
        return item | {"content": [{"type": "output_text", "text": text}]} if text.strip() else None

    ordered = order_blocks(kept, "".join(part.text for part in message.content), calls, fill_message) if kept else None
    if ordered is not None:
        # Thoughts without the items that follow them: "reasoning was provided without its required following item".
        while ordered and ordered[-1].get("type") == REASONING:
            ordered.pop()
        return ordered
    # An answer that was cut, or one of another provider.
    text = join_parts(message.content)
    return [*([{"role": "assistant", "content": text}] if text.strip() else []), *calls]


def _build_content(message: llm_pb2.Message) -> str | list[Item]:
    if any(map(is_media, message.content)):
        return [_build_part(part) for part in message.content]
    return join_parts(message.content)


def _build_part(part: llm_pb2.ContentPart) -> Item:
    match part.WhichOneof("part"):
        case "image":
            detail = {"detail": part.image.detail} if part.image.detail else {}
            return {"type": "input_image", "image_url": make_url(part.image)} | detail
        case "file":
            return {"type": "input_file", "filename": get_file_name(part.file), "file_data": make_url(part.file)}
        case _:
            return {"type": "input_text", "text": part.text}
