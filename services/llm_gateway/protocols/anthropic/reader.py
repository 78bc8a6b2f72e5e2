"""Reads the answer: each event becomes deltas at once.

https://platform.claude.com/docs/en/build-with-claude/streaming (2026-11). Anthropic requires an answer's blocks back in
their order, with thoughts and encrypted parts unchanged. The message itself contains texts and calls; here only their
lengths and positions are stored (https://platform.claude.com/docs/en/build-with-claude/extended-thinking, 2026-11).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
import orjson

from headrace.v1 import common_pb2
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, SendBytes
from services.llm_gateway.protocols.common.reports import drop_impossible, translate_finish
from services.llm_gateway.protocols.common.tool_calls import CallIds, parse_input
from services.llm_gateway.provider_errors.refusal import UNREADABLE, ErrorObject

KIND: Final = "thinking_blocks"

THINKING = ("thinking", "redacted_thinking")

PAUSED: Final = "pause_turn"
"""Stop reason of an answer whose own tools run too long; the same request with the answer would continue it."""


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
    """A Block in raw form."""

    message: Message | None = None
    content: msgspec.Raw = msgspec.Raw()
    """The blocks of an answer that arrived whole instead of as a stream."""

    stop_reason: str | None = None
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_block = msgspec.json.Decoder(Block).decode


class AnthropicReader(AnswerReader):
    __slots__ = (
        "_blocks",
        "_by_index",
        "_chars",
        "_complete_calls",
        "_count",
        "_ids",
        "_is_output_known",
        "_positions",
        "_stop_reason",
        "_text_index",
        "_usage",
    )

    def __init__(self, source: AnswerSource, give: SendBytes) -> None:
        super().__init__(source, give)
        self._ids = CallIds(source.call_ids)
        self._count = 0
        self._positions: dict[int, int] = {}
        """Number of the latest block with each index; some servers give all blocks the same index."""
        self._by_index: dict[int, int] = {}
        self._complete_calls: set[int] = set()
        self._blocks = AnswerBlocks()
        self._text_index = -1
        self._chars = 0
        """Characters of that block's text that are not counted yet."""
        self._stop_reason: str | None = None
        self._usage = UsageReport()
        self._is_output_known = False
        """False until message_delta, because message_start counts only a token or so."""

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        try:
            payload = decode_event(data)
        except UNREADABLE as error:
            payload = self._decode_again(Event, data, error)
            if payload is None:
                return
        if payload.error:
            raise self._make_provider_error(payload.error)
        index = payload.index or 0
        if payload.content_block:
            self._positions[index] = self._count
            self._count += 1
        index = self._positions.get(index, -1)
        if payload.delta is not None:
            self._read_delta(index, payload.delta)
        elif payload.content_block:
            self._begin_block(index, bytes(payload.content_block))
        elif payload.message is not None and payload.message.usage is not None:
            self._merge_usage(payload.message.usage)
        elif payload.type == "message":
            with suppress(*UNREADABLE):
                for at, raw in enumerate(msgspec.json.decode(payload.content, type=list[msgspec.Raw])):
                    self._begin_block(at, bytes(raw))
                    self._blocks.end_block(at)
                self._stop_reason = payload.stop_reason
                self.has_finish = payload.stop_reason is not None
        if payload.usage is not None:
            self._merge_usage(payload.usage)
            self._is_output_known = self._is_output_known or payload.usage.output_tokens is not None
        if payload.type == "content_block_stop":
            self._blocks.end_block(index)
        elif payload.type == "message_stop":
            self._saw_end_mark = self.is_over = True
            self._flush_held()

    def _read_delta(self, index: int, delta: Delta) -> None:
        if delta.text:
            if index != self._text_index:
                self._count_text(index)
            self._chars += len(delta.text)
            self._add_text("content", delta.text)
        elif delta.thinking:
            self._blocks.add_text(index, delta.thinking)
            self._add_text("reasoning", delta.thinking)
        elif delta.partial_json:
            if index in self._complete_calls:
                pass  # they arrived with the call
            elif index in self._by_index:
                self._add_arguments(self._by_index[index], delta.partial_json)
            else:
                self._blocks.add_text(index, delta.partial_json)
        elif delta.signature:
            self._blocks.add_signature(index, delta.signature)
        if delta.stop_reason:
            self._stop_reason = delta.stop_reason
            self.has_finish = True

    def _begin_block(self, index: int, raw: bytes) -> None:
        try:
            block = decode_block(raw)
        except UNREADABLE as error:
            block = self._decode_again(Block, raw, error)
            if block is None:
                return
        self._blocks.begin_block(index, block, raw)
        if block.type == "tool_use":
            self._begin_call(index, block)
        elif block.thinking:
            self._add_text("reasoning", block.thinking)
        elif block.text:
            self._blocks.count_text(index, len(block.text))
            self._add_text("content", block.text)

    def _count_text(self, next_index: int) -> None:
        self._blocks.count_text(self._text_index, self._chars)
        self._text_index, self._chars = next_index, 0

    def _begin_call(self, index: int, block: Block) -> None:
        arguments = bytes(block.input).decode()
        if not arguments.strip('{}" \n') or arguments == "null":
            arguments = ""  # not yet
        if arguments:
            self._complete_calls.add(index)
        call_index = self._by_index[index] = len(self._by_index)
        self._send_call(call_index, arguments, self._ids.make_unique(block.id or ""), block.name or "")

    def _flush_held(self) -> None:
        self._flush_halves()
        self._count_text(-1)
        if not (self._saw_end_mark or self.has_finish):
            self._blocks.drop_open_thoughts()
        if self._stop_reason == PAUSED:
            self._blocks.drop_open_calls()
        if items := self._blocks.build_items():
            self._send_state({KIND: items})
        self._blocks = AnswerBlocks()

    def _merge_usage(self, report: UsageReport) -> None:
        """Take over the numbers of a later report, except zeros for the input, with which some servers end."""
        drop_impossible(report)
        for field in report.__struct_fields__:
            value, known = getattr(report, field), getattr(self._usage, field)
            if value or known is None or (value == 0 and field == "output_tokens"):
                setattr(self._usage, field, value)

    def _map_finish_reason(self) -> str | None:
        if self._stop_reason is None:
            return "stop" if self._saw_end_mark else None
        return translate_finish(self._stop_reason, has_calls=bool(self._by_index))

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        cache_read, cache_written = report.cache_read_input_tokens, report.cache_creation_input_tokens
        usage = common_pb2.Usage(
            input_tokens=(report.input_tokens or 0) + (cache_read or 0) + (cache_written or 0),
            output_tokens=(report.output_tokens or 0) if self._is_output_known else self.deltas,
            model_calls=1,
        )
        if not self._is_output_known:
            usage.estimated = True
        if cache_read is not None:
            usage.cached_tokens = cache_read
        if cache_written:
            usage.cache_write_tokens = cache_written
        details = report.output_tokens_details
        if details is not None and details.thinking_tokens is not None:
            usage.reasoning_tokens = details.thinking_tokens
        return usage


class AnswerBlocks:
    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        """Text of blocks that are still being written, by index: thoughts, or the input of a provider's own tool."""
        self._open: set[int] = set()

    def begin_block(self, index: int, block: Block, raw: bytes) -> None:
        """Begin a block; `raw` has all its fields."""
        self._open.add(index)
        match block.type:
            case "text":
                self._blocks[index] = {"type": "text", "chars": 0}
            case "tool_use":
                self._blocks[index] = {"type": "tool_use"}
            case _:
                self._blocks[index] = orjson.loads(raw)
                self._texts[index] = [block.thinking or ""]

    def end_block(self, index: int) -> None:
        self._open.discard(index)

    def drop_open_thoughts(self) -> None:
        """Leave out thoughts in which the stream was cut: without its whole signature, a thought is refused in every
        later request (https://github.com/pydantic/pydantic-ai/issues/7597, 2026-08)."""
        for index in self._open:
            if self._blocks[index].get("type") in THINKING:
                del self._blocks[index], self._texts[index]

    def drop_open_calls(self) -> None:
        """Leave out calls of the provider's own tools without a result, which are refused in every later request
        (https://github.com/gsd-build/gsd-2/pull/2870, 2026-03)."""
        answered = {block.get("tool_use_id") for block in self._blocks.values()}
        for index, block in [*self._blocks.items()]:
            if block.get("type") == "server_tool_use" and block.get("id") not in answered:
                del self._blocks[index]

    def count_text(self, index: int, chars: int) -> None:
        """Count the characters of a text block; text outside of such a block has no position in the order."""
        if (block := self._blocks.get(index)) is not None and "chars" in block:
            block["chars"] += chars

    def add_text(self, index: int, text: str) -> None:
        if (texts := self._texts.get(index)) is not None:
            texts.append(text)

    def add_signature(self, index: int, signature: str) -> None:
        if (block := self._blocks.get(index)) is not None:
            given = block.get("signature")
            block["signature"] = (given if isinstance(given, str) else "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        """Return the blocks; empty if there are only texts and calls."""
        if not self._texts:
            return []
        items = list[dict[str, Any]]()
        for index, block in self._blocks.items():
            written = "".join(self._texts.get(index, ()))
            if block.get("type") == "thinking":
                items.append(block | {"thinking": written})
            else:
                items.append(block | {"input": parse_input(written)} if written else block)
        return items
