"""The messages: alternating turns of two roles, whose blocks are named by their only field.

One user turn holds all results and the user's text. Blank texts are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.bedrock.answer_blocks import KIND, REASONING
from services.llm_gateway.protocols.common.alternating_turns import Block, Turn, join_turns
from services.llm_gateway.protocols.common.answer_order import order_blocks
from services.llm_gateway.protocols.common.call_input import parse_input
from services.llm_gateway.protocols.common.media import encode_media
from services.llm_gateway.protocols.common.provider_state import unpack_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2

_UNFIT_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
"""What the name of a document may not have, or not twice in a row."""


def build_turns(messages: Iterable[llm_pb2.Message], provider: str) -> list[Turn]:
    return join_turns(messages, lambda message: _build_blocks(message, provider))


def lacks_thoughts(turns: list[Turn]) -> bool:
    """Whether results answer calls without thoughts, as another provider's are."""
    if len(turns) < 2 or not any("toolResult" in block for block in turns[-1]["content"]):
        return False
    return REASONING not in turns[-2]["content"][0]


def _build_blocks(message: llm_pb2.Message, provider: str) -> list[Block]:
    if message.role == "tool":
        content = _build_parts(message) or [{"text": "(empty)"}]
        return [{"toolResult": {"toolUseId": message.tool_call_id, "content": content}}]
    if message.role != "assistant":
        return _build_parts(message)
    calls: list[Block] = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": parse_input(call.arguments)}}
        for call in message.tool_calls
    ]
    kept = unpack_state(message.provider_state, provider, KIND)
    text = "".join(part.text for part in message.content)
    ordered = order_blocks(kept, text, calls) if kept else None
    # An answer that was cut, or one of another provider.
    return [*_build_parts(message), *calls] if ordered is None else ordered


def _build_parts(message: llm_pb2.Message) -> list[Block]:
    if not any(map(is_media, message.content)):
        return [{"text": text}] if (text := join_parts(message.content)).strip() else []
    blocks = [block for part in message.content if (block := _build_part(part)) is not None]
    if message.role == "user" and not any("text" in block for block in blocks):
        names = [block["document"]["name"] for block in blocks if "document" in block]
        blocks += [{"text": ", ".join(names)}] if names else []  # a document wants a text beside it
    return blocks


def _build_part(part: llm_pb2.ContentPart) -> Block | None:
    match part.WhichOneof("part"):
        case "image":
            encoded = encode_media(part.image)
            if encoded is None:
                return {"text": part.image.url}
            kind = encoded.mime_type.rpartition("/")[2].replace("jpg", "jpeg")
            return {"image": {"format": kind, "source": {"bytes": encoded.base64}}}
        case "file":
            encoded = encode_media(part.file)
            name = _UNFIT_NAME.sub(" ", part.file.name.rpartition(".")[0] or part.file.name).strip() or "document"
            source = {"bytes": encoded.base64 if encoded else ""}
            return {"document": {"format": "pdf", "name": name, "source": source}}
        case _:
            return {"text": part.text} if part.text.strip() else None
