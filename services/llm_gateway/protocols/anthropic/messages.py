"""The messages: alternating turns of two roles.

One user turn holds all results and the user's text. The API refuses blank texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from services.llm_gateway.protocols.anthropic.thinking_blocks import KIND
from services.llm_gateway.protocols.common.media import encode_media, is_media
from services.llm_gateway.protocols.common.provider_state import unpack_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2

Block = dict[str, Any]
Turn = dict[str, Any]

THINKING = ("thinking", "redacted_thinking")

_ID_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that the API refuses in a tool_use id."""


def join_system_text(messages: Iterable[llm_pb2.Message]) -> str:
    return "\n\n".join(text for message in messages if message.role == "system" and (text := _join_text(message)))


def build_turns(messages: Iterable[llm_pb2.Message], provider: str) -> list[Turn]:
    turns: list[Turn] = []
    for message in messages:
        if message.role == "system" or not (blocks := _build_blocks(message, provider)):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        blocks = turn["content"]
        thoughts = [block for block in blocks if block["type"] in THINKING]
        turn["content"] = thoughts + [block for block in blocks if block["type"] not in THINKING]
    return turns


def _join_text(message: llm_pb2.Message) -> str:
    return "".join(part.text for part in message.content)


def _build_blocks(message: llm_pb2.Message, provider: str) -> list[Block]:
    if message.role == "tool":
        return [_build_result(message)]
    blocks = [block for part in message.content if (block := _build_part(part)) is not None]
    if message.role == "assistant":
        blocks = unpack_state(message.provider_state, provider, KIND) + blocks
        blocks += [
            {"type": "tool_use", "id": _clean_id(call.id), "name": call.name, "input": _parse_input(call.arguments)}
            for call in message.tool_calls
        ]
    return blocks


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
    return {"type": "base64", "media_type": encoded.mime_type, "data": encoded.base64}


def _build_result(message: llm_pb2.Message) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": _clean_id(message.tool_call_id)}
    if any(map(is_media, message.content)):
        result["content"] = [block for part in message.content if (block := _build_part(part)) is not None]
    elif text := _join_text(message):
        result["content"] = text
    return result


def _parse_input(arguments: str) -> Any:
    # The arguments of an answer that was cut off are no JSON; numbers stay as the model wrote them.
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return orjson.Fragment(arguments) if is_object else {}


def _clean_id(call_id: str) -> str:
    return _ID_CHARS.sub("_", call_id)
