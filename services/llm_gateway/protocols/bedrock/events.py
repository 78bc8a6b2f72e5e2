"""The fields of an event's payload that are read; all others are ignored.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html (2026-11).
"""

from __future__ import annotations

import msgspec


class UsageReport(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    """Without those of the two cache fields."""

    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class ReasoningText(msgspec.Struct, gc=False):
    text: str | None = None
    signature: str | None = None


class Reasoning(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None
    """Base64."""

    reasoning_text: ReasoningText | None = None
    """Of a whole block."""


class ToolUse(msgspec.Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    """A text in a delta, an object in a whole block."""


class Block(msgspec.Struct, gc=False, rename="camel"):
    """The begin of a block, a piece of one, or a whole one."""

    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: Reasoning | None = None


class Message(msgspec.Struct):
    content: list[Block] | None = None


class Output(msgspec.Struct):
    message: Message | None = None


class Event(msgspec.Struct, gc=False, rename="camel"):
    content_block_index: int | None = None
    start: Block | None = None
    delta: Block | None = None
    stop_reason: str | None = None
    usage: UsageReport | None = None
    output: Output | None = None
    """Of a whole answer in the place of a stream."""


class Problem(msgspec.Struct, rename="camel"):
    """The payload of an exception."""

    message: str | None = None
    original_status_code: int | None = None
    original_message: str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_problem = msgspec.json.Decoder(Problem).decode
