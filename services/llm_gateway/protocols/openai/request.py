"""Converts a ChatRequest to the body of POST {baseUrl}/chat/completions."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.protocols.common.request_rules import check_tool_choice
from services.llm_gateway.protocols.openai.reasoning_forms import build_history_fields, build_wish_fields

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/chat/completions"


def build_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> bytes:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_build_message(message, provider) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body |= _build_tools(request)
    if request.HasField("temperature"):
        body["temperature"] = request.temperature
    if request.HasField("top_p"):
        body["top_p"] = request.top_p
    if request.HasField("max_tokens"):
        body[provider.output_limit] = request.max_tokens
    if "reasoning" in model.capabilities:
        body |= build_wish_fields(request, provider)
    return orjson.dumps(body)


def _build_message(message: llm_pb2.Message, provider: Provider) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": _build_content(message)}
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _replace_bad_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    return fields | build_history_fields(message, provider)


def _build_content(message: llm_pb2.Message) -> str | list[dict[str, Any]]:
    """Prefer a string, which every provider takes."""
    if not any(part.HasField("image") for part in message.content):
        return "".join(part.text for part in message.content)
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if part.HasField("image"):
            image = part.image
            url = image.url or f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"
            detail = {"detail": image.detail} if image.detail else {}
            parts.append({"type": "image_url", "image_url": {"url": url} | detail})
        else:
            parts.append({"type": "text", "text": part.text})
    return parts


def _replace_bad_arguments(text: str) -> str:
    # The arguments of an answer that was cut off are no JSON, for which some providers refuse the whole chat.
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}"
    return text


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for tool in request.tools:
        parameters = {"parameters": orjson.Fragment(tool.parameters)} if tool.parameters else {}
        function = {"name": tool.name, "description": tool.description} | parameters
        tools.append({"type": "function", "function": function})
    fields: dict[str, Any] = {"tools": tools}
    if choice := request.tool_choice:
        fields["tool_choice"] = choice
    if choice not in ("", "none", "auto", "required"):
        check_tool_choice(request)
        fields["tool_choice"] = {"type": "function", "function": {"name": choice}}
    if request.HasField("parallel_tool_calls"):
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields
