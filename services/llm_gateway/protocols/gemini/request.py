"""Converts a ChatRequest to the body of POST {baseUrl}/models/{model}:streamGenerateContent.

https://ai.google.dev/api/generate-content (2026-11). An answer is sent back as its original parts, each with the
signature of its thoughts (https://ai.google.dev/gemini-api/docs/thought-signatures, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from headrace.v1 import llm_pb2
from services.llm_gateway.fitting.provider_state import order_blocks, unpack_state
from services.llm_gateway.fitting.turns import BLANK_LINE, is_media, join_parts, join_system_text
from services.llm_gateway.protocols.common.media import encode_media, get_audio_format
from services.llm_gateway.protocols.common.request_rules import (
    THINKING_TOKENS,
    build_limits,
    check_tool_choice,
    describe_form,
    has_form_in_words,
)
from services.llm_gateway.protocols.common.tool_calls import parse_input
from services.llm_gateway.protocols.gemini.reader import GIVEN_ID, KIND, SIGNATURE
from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/models/{model}:streamGenerateContent"
QUERY = {"alt": "sse"}
KEY_HEADER = "x-goog-api-key"

DYNAMIC_BUDGET = -1

_MODES = {"none": "NONE", "auto": "AUTO", "required": "ANY"}

_BEFORE_GEMINI_3 = re.compile(r"gemini-[12]\b")

AUDIO_TYPES = {"wav": "audio/wav"}
"""Gemini's name for audio formats that have several MIME types (https://ai.google.dev/gemini-api/docs/audio)."""

Part = dict[str, Any]
Content = dict[str, Any]

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""Replaces the signature of a call that another model made."""

MIME_TYPE = "image/*"
"""Type of a picture given by its address, if the caller did not specify it."""


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    is_older = _BEFORE_GEMINI_3.match(request.model) is not None
    contents = build_contents(request.messages, provider.key, wants_signatures=not is_older)
    if "image" in request.model and not is_older:
        # These models require a signature of all parts of their own
        # (https://ai.google.dev/gemini-api/docs/gemini-3, "Thought signatures", 2026-11).
        for part in (part for content in contents if content["role"] == "model" for part in content["parts"]):
            part.setdefault(SIGNATURE, NO_SIGNATURE)
    body: dict[str, Any] = {"contents": contents}
    config: dict[str, Any] = {}
    instructions = [join_system_text(request.messages)]
    # Older models do not accept an output format together with functions.
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
        # The other models refuse to disable thinking, or do not think by default.
        return {"thinkingConfig": {"thinkingBudget": 0}} if request.model.startswith("gemini-2.5-flash") else {}
    wish: dict[str, Any] = {"includeThoughts": True}
    if is_older:
        wish["thinkingBudget"] = THINKING_TOKENS.get(reasoning.effort, DYNAMIC_BUDGET)
    elif reasoning.effort:
        wish["thinkingLevel"] = reasoning.effort.lower()
    return {"thinkingConfig": wish}


def build_contents(messages: Iterable[llm_pb2.Message], provider: str, *, wants_signatures: bool) -> list[Content]:
    contents: list[Content] = []
    given_ids: dict[str, str] = {}
    for message in messages:
        match message.role:
            case "user":
                if parts := _build_parts(message):
                    contents.append({"role": "user", "parts": parts})
            case "tool":
                content: dict[str, Any] = {"name": message.name, "response": {"output": join_parts(message.content)}}
                if given_id := given_ids.get(message.tool_call_id):
                    content["id"] = given_id
                response: Part = {"functionResponse": content}
                # All results of a turn are one content.
                if contents and "functionResponse" in contents[-1]["parts"][-1]:
                    contents[-1]["parts"].append(response)
                else:
                    contents.append({"role": "user", "parts": [response]})
            case "assistant":
                parts = _build_answer(message, provider, given_ids, wants_signatures=wants_signatures)
                if contents and contents[-1]["role"] == "model":
                    contents[-1]["parts"] += parts  # a call must follow the user's content or a result
                elif parts:
                    contents.append({"role": "model", "parts": parts})
            case _:
                pass  # instructions have a separate field
    return contents


def _build_answer(
    message: llm_pb2.Message, provider: str, given_ids: dict[str, str], *, wants_signatures: bool
) -> list[Part]:
    calls: list[Part] = [
        {"functionCall": {"name": call.name, "args": parse_input(call.arguments)}} for call in message.tool_calls
    ]
    kept = unpack_state(message.provider_state, provider, KIND)
    text = "".join(part.text for part in message.content)
    ordered = order_blocks(kept, text, calls, _fill_part) if kept else None
    if ordered is None:
        if calls and wants_signatures:
            calls[0][SIGNATURE] = NO_SIGNATURE
        return [*_build_parts(message), *calls]
    called = iter(message.tool_calls)
    for part in ordered:
        if "functionCall" in part:
            given_id = given_ids[next(called).id] = part.pop(GIVEN_ID, "")
            part["functionCall"] |= {"id": given_id} if given_id else {}
    return ordered


def _fill_part(part: Part, text: str) -> Part | None:
    return part | {"text": text} if text.strip() or SIGNATURE in part else None


def _build_parts(message: llm_pb2.Message) -> list[Part]:
    if not any(map(is_media, message.content)):
        return [{"text": text}] if (text := join_parts(message.content)).strip() else []
    return [_build_part(part) for part in message.content]


def _build_part(part: llm_pb2.ContentPart) -> Part:
    match part.WhichOneof("part"):
        case "image":
            return _build_data(part.image)
        case "audio":
            return _build_data(part.audio, AUDIO_TYPES.get(get_audio_format(part.audio) or ""))
        case "file":
            return _build_data(part.file)
        case _:
            return {"text": part.text}


def _build_data(part: llm_pb2.ImagePart | llm_pb2.AudioPart | llm_pb2.FilePart, mime_type: str | None = None) -> Part:
    encoded = encode_media(part)
    if encoded is None:
        return {"fileData": {"mimeType": part.mime_type or MIME_TYPE, "fileUri": part.url}}
    return {"inlineData": {"mimeType": mime_type or encoded.mime_type, "data": encoded.base64}}
