"""The fields of an event that are read; all others are ignored.

https://developers.openai.com/api/reference/resources/responses/streaming-events (2026-11).
"""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


class InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class UsageReport(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: UsageReport | None = None
    incomplete_details: Incomplete | None = None
    error: ErrorObject | str | None = None


class Content(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """A text, of some servers an object."""

    content: list[Content] | None = None
    summary: list[Content] | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    item: msgspec.Raw = msgspec.Raw()
    """An Item, kept as it came."""

    response: Response | None = None
    error: ErrorObject | str | None = None
    message: str | None = None
    """Of an event of type `error`, as the next two."""

    code: str | int | None = None
    param: msgspec.Raw = msgspec.Raw()
    object: str | None = None
    """`response` where the whole answer came in the place of a stream."""


decode_event = msgspec.json.Decoder(Event).decode
decode_item = msgspec.json.Decoder(Item).decode
decode_response = msgspec.json.Decoder(Response).decode
