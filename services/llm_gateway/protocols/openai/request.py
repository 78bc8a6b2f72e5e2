"""Converts a ChatRequest to the body of POST {baseUrl}/chat/completions."""

from __future__ import annotations

from typing import Any

import orjson

from headrace.v1 import common_pb2, llm_pb2
from services.llm_gateway.fitting.fitted_request import CHOICES
from services.llm_gateway.fitting.provider_state import unpack_state
from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.common.media import encode_media, get_audio_format, get_file_name, make_url
from services.llm_gateway.protocols.common.request_rules import (
    DEFAULT_NAME,
    THINKING_TOKENS,
    build_limits,
    check_tool_choice,
    describe_form,
    has_form_in_words,
    is_any_object,
    replace_bad_arguments,
)
from services.llm_gateway.protocols.openai.reasoning import BLOCKS_KIND, KIND
from services.llm_gateway.protocols.openai.tool_calls import AT, CALL_KIND, MESSAGE_KIND
from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/chat/completions"


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_build_message(message, provider, request.model) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if has_form_in_words(request, model):
        form = describe_form(request.output_format)
        if (first := body["messages"][0])["role"] == "system":
            first["content"] += f"\n\n{form}"  # some chat templates accept a system message only at the beginning
        else:
            body["messages"].insert(0, {"role": "system", "content": form})
    elif request.HasField("output_format"):
        body["response_format"] = _build_response_format(request.output_format)
    if request.tools:
        body |= _build_tools(request)
    body |= build_limits(request, "temperature", "top_p", provider.output_limit)
    if "reasoning" in model.capabilities:
        body |= build_wish_fields(request, provider)
    return body


def _build_response_format(wanted: common_pb2.OutputFormat) -> dict[str, Any]:
    if is_any_object(wanted):
        return {"type": "json_object"}
    form: dict[str, Any] = {"name": wanted.name or DEFAULT_NAME, "schema": orjson.Fragment(wanted.schema)}
    if wanted.description:
        form["description"] = wanted.description
    if wanted.HasField("strict"):
        form["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": form}


def _build_message(message: llm_pb2.Message, provider: Provider, model: str) -> dict[str, Any]:
    # A string, which every provider accepts; omitted for calls without text, for which some gateways send "".
    content: Any = join_parts(message.content)
    if message.tool_calls and not content.strip():
        content = None
    if any(map(is_media, message.content)):
        content = [_build_part(part) for part in message.content]
    fields: dict[str, Any] = {"role": message.role, "content": content}
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
        if "gemini" in model:
            fields["name"] = message.name  # others do not read it, and some refuse it
    return fields | build_history_fields(message, provider)


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
            return {"type": "file", "file": {"filename": get_file_name(part.file), "file_data": make_url(part.file)}}
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


# The forms of `reasoning`, as of 2026-11:
#
# - `reasoning_effort`: https://platform.openai.com/docs/guides/reasoning
# - `enable_thinking`: Bailian, https://help.aliyun.com/zh/model-studio/deep-thinking, and SiliconFlow,
#   https://docs.siliconflow.cn/cn/userguide/capabilities/reasoning
# - `thinking`: https://api-docs.deepseek.com/guides/thinking_mode; a turn with calls must carry its reasoning_content
# - `reasoning`: https://openrouter.ai/docs/use-cases/reasoning-tokens
# - `chat_template_kwargs`: https://docs.vllm.ai/en/v0.26.0/features/reasoning_outputs/; Qwen's template reads
#   enable_thinking, DeepSeek's and Granite's read thinking
# - `reasoning_split`: https://platform.minimax.io/docs/api-reference/text-openai-api; `adaptive` is the same without
#   the split
def build_wish_fields(request: llm_pb2.ChatRequest, provider: Provider) -> dict[str, Any]:
    fields = _form_wish(request.reasoning, provider) if request.HasField("reasoning") else {}
    return fields | {"reasoning_split": True} if provider.reasoning == "reasoning_split" else fields


def _form_wish(reasoning: llm_pb2.Reasoning, provider: Provider) -> dict[str, Any]:
    effort = reasoning.effort.lower() if reasoning.enabled else ""
    match provider.reasoning:
        case "reasoning_effort":
            # No form of "off" is accepted by all models: older ones refuse the effort "none".
            return {"reasoning_effort": effort} if effort else {}
        case "enable_thinking":
            budget = THINKING_TOKENS.get(reasoning.effort) if reasoning.enabled else None
            return {"enable_thinking": reasoning.enabled} | ({"thinking_budget": budget} if budget else {})
        case "thinking":
            thinking = {"thinking": {"type": "enabled" if reasoning.enabled else "disabled"}}
            return thinking | ({"reasoning_effort": effort} if effort else {})
        case "reasoning":
            if not reasoning.enabled:
                return {"reasoning": {"effort": "none"}}
            return {"reasoning": {"effort": effort} if effort else {"enabled": True}}
        case "chat_template_kwargs":
            return {"chat_template_kwargs": {"enable_thinking": reasoning.enabled, "thinking": reasoning.enabled}}
        case "reasoning_split" | "adaptive":
            return {"thinking": {"type": "adaptive" if reasoning.enabled else "disabled"}}


def build_history_fields(message: llm_pb2.Message, provider: Provider) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if message.provider_state:
        for kind in (BLOCKS_KIND, KIND):
            if items := unpack_state(message.provider_state, provider.key, kind):
                fields[kind] = items
    if message.reasoning_content:
        match provider.reasoning:
            case "reasoning_effort" if not provider.keeps_reasoning:
                # OpenAI itself does not have this field.
                pass
            case "reasoning":
                if KIND not in fields:
                    fields["reasoning"] = message.reasoning_content
            case "chat_template_kwargs":
                # vLLM read the second field until 0.11 and has read the first since.
                fields |= dict.fromkeys(("reasoning", "reasoning_content"), message.reasoning_content)
            case _:
                fields["reasoning_content"] = message.reasoning_content
    elif message.tool_calls and provider.keeps_reasoning:
        # The field is required even if the model called without a thought; to Kimi K2.6 and DeepSeek V4, an empty one
        # is missing (https://github.com/theopenco/llmgateway/pull/2093, 2026-04).
        fields["reasoning_content"] = " "
    return fields
