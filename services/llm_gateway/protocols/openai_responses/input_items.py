"""The conversation as items. An answer goes back as the items that came, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.common.answer_order import order_blocks
from services.llm_gateway.protocols.common.media import make_url
from services.llm_gateway.protocols.common.provider_state import unpack_state
from services.llm_gateway.protocols.common.request_rules import replace_bad_arguments
from services.llm_gateway.protocols.openai_responses.answer_items import KIND, REASONING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2

Item = dict[str, Any]


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
                pass  # instructions have a field of their own
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
    ordered = order_blocks(kept, "".join(part.text for part in message.content), calls, _fill_message) if kept else None
    if ordered is not None:
        return _drop_thoughts_alone(ordered)
    # An answer that was cut, or one of another provider.
    text = join_parts(message.content)
    return [*([{"role": "assistant", "content": text}] if text else []), *calls]


def _fill_message(item: Item, text: str) -> Item | None:
    return item | {"content": [{"type": "output_text", "text": text}]} if text.strip() else None


def _drop_thoughts_alone(items: list[Item]) -> list[Item]:
    """Drop thoughts without what they led to: "reasoning was provided without its required following item"."""
    while items and items[-1].get("type") == REASONING:
        items.pop()
    return items


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
            return {"type": "input_file", "filename": part.file.name, "file_data": make_url(part.file)}
        case _:
            return {"type": "input_text", "text": part.text}
