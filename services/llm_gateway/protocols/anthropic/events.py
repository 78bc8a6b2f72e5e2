"""The fields of an event that are read; all others are ignored.

https://platform.claude.com/docs/en/build-with-claude/streaming (2026-11).
"""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


class OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class UsageReport(msgspec.Struct):
    input_tokens: int | None = None
    """Excludes the tokens of the two cache fields."""

    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Message(msgspec.Struct):
    usage: UsageReport | None = None


class Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    """The input, which some servers send whole instead of in deltas."""


class Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: Delta | None = None
    content_block: msgspec.Raw = msgspec.Raw()
    """A Block, kept as it came."""

    message: Message | None = None
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_block = msgspec.json.Decoder(Block).decode
