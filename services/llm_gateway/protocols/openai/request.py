"""Converts a ChatRequest to the body of POST {baseUrl}/chat/completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.fitting.fitted_request import CHOICES
from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.common.media import encode_media, get_audio_format, make_url
from services.llm_gateway.protocols.common.output_format import (
    DEFAULT_NAME,
    describe_form,
    has_form_in_words,
    is_any_object,
)
from services.llm_gateway.protocols.common.provider_state import unpack_state
from services.llm_gateway.protocols.common.request_rules import build_limits, check_tool_choice, replace_bad_arguments
from services.llm_gateway.protocols.openai.opaque_fields import AT, CALL_KIND, MESSAGE_KIND
from services.llm_gateway.protocols.openai.reasoning_forms import build_history_fields, build_wish_fields

if TYPE_CHECKING:
    from headrace.v1 import common_pb2, llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/chat/completions"


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_build_message(message, provider) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if has_form_in_words(request, model):
        _add_instruction(body["messages"], describe_form(request.output_format))
    elif request.HasField("output_format"):
        body["response_format"] = _build_response_format(request.output_format)
    if request.tools:
        body |= _build_tools(request)
    body |= build_limits(request, "temperature", "top_p", provider.output_limit)
    if "reasoning" in model.capabilities:
        body |= build_wish_fields(request, provider)
    return body


def _add_instruction(messages: list[dict[str, Any]], text: str) -> None:
    """Put `text` behind the instructions; some chat templates take a system message only in front."""
    if messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{text}"
    else:
        messages.insert(0, {"role": "system", "content": text})


def _build_response_format(wanted: common_pb2.OutputFormat) -> dict[str, Any]:
    if is_any_object(wanted):
        return {"type": "json_object"}
    form: dict[str, Any] = {"name": wanted.name or DEFAULT_NAME, "schema": orjson.Fragment(wanted.schema)}
    if wanted.description:
        form["description"] = wanted.description
    if wanted.HasField("strict"):
        form["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": form}


def _build_message(message: llm_pb2.Message, provider: Provider) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": _build_content(message)}
    if message.tool_calls:
        opaque = {item.pop(AT, None): item for item in unpack_state(message.provider_state, provider.key, CALL_KIND)}
        fields["tool_calls"] = [
            opaque.get(at, {})
            | {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": replace_bad_arguments(call.arguments)},
            }
            for at, call in enumerate(message.tool_calls)
        ]
    for item in unpack_state(message.provider_state, provider.key, MESSAGE_KIND):
        fields |= item
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    return fields | build_history_fields(message, provider)


def _build_content(message: llm_pb2.Message) -> str | list[dict[str, Any]] | None:
    """Prefer a string, which every provider takes; None for calls without a word, as some gateways make one of ""."""
    if any(map(is_media, message.content)):
        return [_build_part(part) for part in message.content]
    return join_parts(message.content) or (None if message.tool_calls else "")


def _build_part(part: llm_pb2.ContentPart) -> dict[str, Any]:
    match part.WhichOneof("part"):
        case "image":
            detail = {"detail": part.image.detail} if part.image.detail else {}
            return {"type": "image_url", "image_url": {"url": make_url(part.image)} | detail}
        case "audio":
            encoded = encode_media(part.audio)
            sound = {"data": encoded.base64 if encoded else "", "format": get_audio_format(part.audio)}
            return {"type": "input_audio", "input_audio": sound}
        case "file":
            return {"type": "file", "file": {"filename": part.file.name, "file_data": make_url(part.file)}}
        case _:
            return {"type": "text", "text": part.text}


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for tool in request.tools:
        parameters = {"parameters": orjson.Fragment(tool.parameters)} if tool.parameters else {}
        function = {"name": tool.name, "description": tool.description} | parameters
        tools.append({"type": "function", "function": function})
    fields: dict[str, Any] = {"tools": tools}
    if choice := request.tool_choice:
        fields["tool_choice"] = choice
    if choice not in CHOICES:
        check_tool_choice(request)
        fields["tool_choice"] = {"type": "function", "function": {"name": choice}}
    if request.HasField("parallel_tool_calls"):
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields
