"""Converts a ChatRequest to the body of POST {baseUrl}/messages.

https://platform.claude.com/docs/en/api/messages (2026-11). Turns alternate between two roles: one user turn has all
results and the user's text. The API refuses blank texts.

A request has at most four cache marks; the provider may cache the prefix up to each. A later request finds a cached
prefix if one of its own marks is at most 20 blocks after it, so the conversation has two: at its end, and at the end of
the previous user turn, where the last request had one. The first turn has one too: after a compaction it begins with
the summary, which remains when the rest is replaced
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-11).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import orjson

from headrace.v1 import llm_pb2
from services.llm_gateway.fitting.provider_state import order_blocks, unpack_state
from services.llm_gateway.fitting.turns import is_media, join_parts, join_system_text
from services.llm_gateway.protocols.anthropic.reader import KIND, THINKING
from services.llm_gateway.protocols.common.media import encode_media
from services.llm_gateway.protocols.common.request_rules import (
    NO_THINKING,
    Block,
    Turn,
    build_thinking,
    check_tool_choice,
    describe_form,
    find_closed_schema,
    join_turns,
)
from services.llm_gateway.protocols.common.tool_calls import parse_input
from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/messages"

VERSION = "2023-06-01"
"""The only version (2026-11)."""

OUTPUT_TOKENS_MAX = 8_192
"""Default of the required limit; every model since 2024 accepts it."""

TOP_P_MIN_THINKING = 0.95
"""Minimum budget; smaller values are refused with thinking."""

MARK: Final = {"cache_control": {"type": "ephemeral"}}

MARKS_MAX = 4
"""Maximum number of marks; more are refused."""


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    conversation = build_turns(request.messages, provider.key)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or model.max_output or OUTPUT_TOKENS_MAX,
        "messages": conversation,
        "stream": True,
    }
    system = join_system_text(request.messages)
    schema = find_closed_schema(request, model)
    if request.HasField("output_format") and schema is None:
        system = "\n\n".join(filter(None, (system, describe_form(request.output_format))))
    if system:
        body["system"] = system
    if request.tools:
        body |= _build_tools(request)
    lacks_thoughts = _lacks_thoughts(conversation)
    body |= build_thinking(request, provider, model, body["max_tokens"], lacks_thoughts=lacks_thoughts)
    if schema is not None:
        form = {"type": "json_schema", "schema": orjson.Fragment(schema)}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    # Models since Claude 4.5 refuse both together, and all models refuse a temperature together with thinking.
    thinks = body.get("thinking", NO_THINKING) != NO_THINKING
    if request.HasField("temperature") and not thinks:
        body["temperature"] = request.temperature
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
    """Return whether results answer calls without thinking blocks, for example another provider's."""
    results = conversation[-1]["content"] if conversation else []
    if len(conversation) < 2 or not any(block["type"] == "tool_result" for block in results):
        return False
    return conversation[-2]["content"][0]["type"] not in THINKING


def build_turns(messages: Iterable[llm_pb2.Message], provider: str) -> list[Turn]:
    return join_turns(messages, lambda message: _build_blocks(message, provider))


def _build_blocks(message: llm_pb2.Message, provider: str) -> list[Block]:
    if message.role == "tool":
        return [_build_result(message)]
    blocks = [block for part in message.content if (block := _build_part(part)) is not None]
    if message.role != "assistant":
        return blocks
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": parse_input(call.arguments)}
        for call in message.tool_calls
    ]
    items = unpack_state(message.provider_state, provider, KIND)
    text = "".join(part.text for part in message.content)
    ordered = None if any(map(is_media, message.content)) else order_blocks(items, text, calls)
    if ordered is not None:
        return ordered
    # An answer that was cut, or one from an earlier version's log, of which only the thoughts are known.
    return [*(item for item in items if item.get("type") in THINKING), *blocks, *calls]


def _build_part(part: llm_pb2.ContentPart) -> Block | None:
    match part.WhichOneof("part"):
        case "image":
            return {"type": "image", "source": _build_source(part.image)}
        case "file":
            title = {"title": part.file.name} if part.file.name else {}
            return {"type": "document", "source": _build_source(part.file)} | title
        case _:
            return {"type": "text", "text": part.text} if part.text.strip() else None


def _build_source(part: llm_pb2.ImagePart | llm_pb2.FilePart) -> dict[str, str]:
    encoded = encode_media(part)
    if encoded is None:
        return {"type": "url", "url": part.url}
    if isinstance(part, llm_pb2.FilePart) and encoded.mime_type.startswith("text/"):
        # A text file must be text, and have this type (https://github.com/laravel/ai/pull/886, 2026-08).
        with suppress(ValueError):  # the provider reports it
            text = base64.b64decode(encoded.base64).decode(errors="replace")
            return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": encoded.mime_type, "data": encoded.base64}


def _build_result(message: llm_pb2.Message) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if any(map(is_media, message.content)):
        result["content"] = [block for part in message.content if (block := _build_part(part)) is not None]
    else:
        result["content"] = join_parts(message.content)
    return result


def mark_cache(body: dict[str, Any]) -> None:
    """Mark the ends of tools and instructions, of the user's first turn, and of the last ones.

    Tools have a separate mark so that they remain cached when the instructions change.
    """
    left = MARKS_MAX - 1
    if tools := body.get("tools"):
        tools[-1] |= MARK
        left -= 1
    if system := body.get("system"):
        body["system"] = [{"type": "text", "text": system} | MARK]
        left -= 1
    turns = [turn for turn in body["messages"] if turn["role"] == "user"]
    for turn in (*turns[:1], *turns[1:][-left:]):
        turn["content"][-1] |= MARK
