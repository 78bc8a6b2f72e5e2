"""Reads the answer: each event becomes deltas at once. Converse requires its blocks back, thoughts with their
signatures.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html (2026-11).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.v1 import common_pb2
from services.llm_gateway.fitting.provider_state import CALL, CHARS
from services.llm_gateway.protocols.bedrock.event_stream import DOCUMENT, EVENT, EventStreamReader
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, SendBytes
from services.llm_gateway.protocols.common.reports import drop_impossible, translate_finish
from services.llm_gateway.protocols.common.tool_calls import CallIds, read_arguments
from services.llm_gateway.provider_errors.refusal import UNREADABLE, ErrorObject

STATUSES = {
    "throttlingException": 429,
    "validationException": 400,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "serviceUnavailableException": 503,
}
"""Statuses of exceptions within a stream, by name."""

KIND: Final = "content_blocks"

REASONING: Final = "reasoningContent"


class UsageReport(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    """Excludes the tokens of the two cache fields."""

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
    """The thoughts of a block that arrived whole."""


class ToolUse(msgspec.Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    """A text in a delta, an object in a whole block."""


class Block(msgspec.Struct, gc=False, rename="camel"):
    """The beginning of a block, a piece of one, or a whole one."""

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
    """The answer, if it arrived whole instead of as a stream."""


class Problem(msgspec.Struct, rename="camel"):
    """The payload of an exception."""

    message: str | None = None
    original_status_code: int | None = None
    original_message: str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_problem = msgspec.json.Decoder(Problem).decode


class BedrockReader(AnswerReader):
    __slots__ = ("_blocks", "_by_index", "_ids", "_stop_reason", "_usage")

    def __init__(self, source: AnswerSource, give: SendBytes) -> None:
        super().__init__(source, give, frames=EventStreamReader())
        self._ids = CallIds(source.call_ids)
        self._blocks = AnswerBlocks()
        self._by_index: dict[int, int] = {}
        """Our index of each call, by the block's."""
        self._stop_reason: str | None = None
        self._usage: UsageReport | None = None

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        if frame_id not in (EVENT, DOCUMENT):
            raise self._make_provider_error(_read_problem(event or "", data))
        try:
            payload = decode_event(data)
        except UNREADABLE as error:
            payload = self._decode_again(Event, data, error, is_document=frame_id == DOCUMENT)
            if payload is None:
                return
        index = payload.content_block_index or 0
        if (block := payload.delta or payload.start) is not None:
            self._read_block(index, block)
        elif payload.output is not None and payload.output.message is not None:
            for at, whole in enumerate(payload.output.message.content or ()):
                self._read_block(at, whole)
        if payload.stop_reason:
            self._stop_reason = payload.stop_reason
            self.has_finish = True
        if payload.usage is not None:
            drop_impossible(payload.usage)
            self._usage = payload.usage
            self.is_over = self.has_finish
        if self.is_over or frame_id == DOCUMENT:
            self._flush_held()
        if frame_id == DOCUMENT and not (self.deltas or self.has_finish):
            self._pass_over(data)

    def _read_block(self, index: int, block: Block) -> None:
        if block.tool_use is not None:
            self._read_call(index, block.tool_use)
        elif block.reasoning_content is not None:
            self._blocks.add_reasoning(index, block.reasoning_content)
            piece = block.reasoning_content.reasoning_text or block.reasoning_content
            self._add_text("reasoning", piece.text or "")
        elif block.text:
            self._blocks.count_text(index, self._add_text("content", block.text))

    def _read_call(self, index: int, call: ToolUse) -> None:
        arguments = read_arguments(call.input)
        if call.name or index not in self._by_index:
            self._blocks.begin_call(index)
            self._by_index[index] = len(self._by_index)
            self._send_call(
                self._by_index[index], arguments, self._ids.make_unique(call.tool_use_id or ""), call.name or ""
            )
            return
        self._add_arguments(self._by_index[index], arguments)

    def _flush_held(self) -> None:
        self._flush_halves()
        if items := self._blocks.build_items():
            self._send_state({KIND: items})
        self._blocks = AnswerBlocks()

    def _map_finish_reason(self) -> str | None:
        if self._stop_reason is None:
            return None
        return translate_finish(self._stop_reason, has_calls=bool(self._by_index))

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        if report is None:
            return common_pb2.Usage(output_tokens=self.deltas, model_calls=1, estimated=True)
        read, written = report.cache_read_input_tokens, report.cache_write_input_tokens
        usage = common_pb2.Usage(
            input_tokens=(report.input_tokens or 0) + (read or 0) + (written or 0),
            output_tokens=report.output_tokens or 0,
            model_calls=1,
        )
        if read is not None:
            usage.cached_tokens = read
        if written:
            usage.cache_write_tokens = written
        return usage


def _read_problem(name: str, data: bytes) -> ErrorObject:
    try:
        problem = decode_problem(data)
    except UNREADABLE:
        problem = Problem(data.decode(errors="replace"))
    message = ": ".join(filter(None, (problem.message, problem.original_message)))
    status = problem.original_status_code or STATUSES.get(name)
    return ErrorObject(message, type=name, code=status)


class AnswerBlocks:
    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        """Pieces of thoughts, by the block's index."""

    def count_text(self, index: int, text: str) -> None:
        block = self._blocks.setdefault(index, {CHARS: 0})
        if CHARS in block:
            block[CHARS] += len(text)

    def begin_call(self, index: int) -> None:
        self._blocks[index] = {CALL: True}

    def add_reasoning(self, index: int, piece: Reasoning) -> None:
        if piece.redacted_content:
            self._blocks[index] = {REASONING: {"redactedContent": piece.redacted_content}}
            return
        block = self._blocks.setdefault(index, {REASONING: {"reasoningText": {"text": ""}}})
        whole = piece.reasoning_text
        text, signature = (piece.text, piece.signature) if whole is None else (whole.text, whole.signature)
        if text:
            self._texts.setdefault(index, []).append(text)
        if signature and (thought := block.get(REASONING, {}).get("reasoningText")) is not None:
            thought["signature"] = thought.get("signature", "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        """Return the blocks; empty if there are only texts and calls."""
        if not any(REASONING in block for block in self._blocks.values()):
            return []
        for index, texts in self._texts.items():
            if (thought := self._blocks[index].get(REASONING, {}).get("reasoningText")) is not None:
                thought["text"] = "".join(texts)
        return [block for _, block in sorted(self._blocks.items())]
