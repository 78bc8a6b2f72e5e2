"""The fields of an event that are read, all optional; unknown fields and event types are ignored.

https://platform.claude.com/docs/en/build-with-claude/streaming (2026-11).
"""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


class OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class UsageReport(msgspec.Struct):
    """Cumulative tokens; each event has only some of the fields."""

    input_tokens: int | None = None
    """Excludes the tokens of the two cache fields."""

    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Message(msgspec.Struct):
    """The message of message_start."""

    usage: UsageReport | None = None


class Block(msgspec.Struct):
    """The block of content_block_start, usually filled by deltas."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    """`{}` before deltas; some servers send the whole input here instead."""


class Delta(msgspec.Struct, gc=False):
    """The delta of content_block_delta or message_delta."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_event = msgspec.json.Decoder(Event).decode
