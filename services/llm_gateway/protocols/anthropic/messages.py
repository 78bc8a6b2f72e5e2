"""The messages: alternating turns of two roles.

One user turn holds all results and the user's text. The API refuses blank texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.anthropic.answer_blocks import KIND, THINKING
from services.llm_gateway.protocols.common.alternating_turns import Block, Turn, join_turns
from services.llm_gateway.protocols.common.answer_order import order_blocks
from services.llm_gateway.protocols.common.call_input import parse_input
from services.llm_gateway.protocols.common.media import encode_media
from services.llm_gateway.protocols.common.provider_state import unpack_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2


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
    # An answer that was cut, or one of an earlier version's log, whose thoughts alone are known.
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
    return {"type": "base64", "media_type": encoded.mime_type, "data": encoded.base64}


def _build_result(message: llm_pb2.Message) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if any(map(is_media, message.content)):
        result["content"] = [block for part in message.content if (block := _build_part(part)) is not None]
    elif text := join_parts(message.content):
        result["content"] = text
    return result
