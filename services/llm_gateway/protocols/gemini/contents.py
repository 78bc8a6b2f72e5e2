"""The conversation as contents. An answer goes back as the parts that came, each with the signature of its thoughts.

https://ai.google.dev/gemini-api/docs/thought-signatures (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from services.llm_gateway.fitting.turns import is_media, join_parts
from services.llm_gateway.protocols.common.answer_order import order_blocks
from services.llm_gateway.protocols.common.media import encode_media
from services.llm_gateway.protocols.common.provider_state import unpack_state
from services.llm_gateway.protocols.common.request_rules import replace_bad_arguments
from services.llm_gateway.protocols.gemini.answer_parts import GIVEN_ID, KIND, SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2

Part = dict[str, Any]
Content = dict[str, Any]

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""In the place of the signature of a call that another model has made."""

MIME_TYPE = "image/*"
"""Of a picture at an address, whose type nobody has told."""


def build_contents(messages: Iterable[llm_pb2.Message], provider: str, *, wants_signatures: bool) -> list[Content]:
    contents: list[Content] = []
    given_ids: dict[str, str] = {}
    for message in messages:
        match message.role:
            case "user":
                contents.append({"role": "user", "parts": _build_parts(message)})
            case "tool":
                response = _build_response(message, given_ids)
                # All results of a turn are one content.
                if contents and "functionResponse" in contents[-1]["parts"][-1]:
                    contents[-1]["parts"].append(response)
                else:
                    contents.append({"role": "user", "parts": [response]})
            case "assistant":
                parts = _build_answer(message, provider, given_ids, wants_signatures=wants_signatures)
                contents += [{"role": "model", "parts": parts}] if parts else []
            case _:
                pass  # instructions have a field of their own
    return contents


def _build_response(message: llm_pb2.Message, given_ids: dict[str, str]) -> Part:
    response: dict[str, Any] = {"name": message.name, "response": {"output": join_parts(message.content)}}
    if given_id := given_ids.get(message.tool_call_id):
        response["id"] = given_id
    return {"functionResponse": response}


def _build_answer(
    message: llm_pb2.Message, provider: str, given_ids: dict[str, str], *, wants_signatures: bool
) -> list[Part]:
    calls: list[Part] = [
        {"functionCall": {"name": call.name, "args": orjson.Fragment(_make_object(call.arguments))}}
        for call in message.tool_calls
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


def _make_object(arguments: str) -> str:
    text = replace_bad_arguments(arguments)
    return text if text.lstrip().startswith("{") else "{}"


def _build_parts(message: llm_pb2.Message) -> list[Part]:
    if not any(map(is_media, message.content)):
        return [{"text": text}] if (text := join_parts(message.content)) else []
    return [_build_part(part) for part in message.content]


def _build_part(part: llm_pb2.ContentPart) -> Part:
    match part.WhichOneof("part"):
        case "image":
            return _build_data(part.image)
        case "audio":
            return _build_data(part.audio)
        case "file":
            return _build_data(part.file)
        case _:
            return {"text": part.text}


def _build_data(part: llm_pb2.ImagePart | llm_pb2.AudioPart | llm_pb2.FilePart) -> Part:
    encoded = encode_media(part)
    if encoded is None:
        return {"fileData": {"mimeType": part.mime_type or MIME_TYPE, "fileUri": part.url}}
    return {"inlineData": {"mimeType": encoded.mime_type, "data": encoded.base64}}
