"""Protocol `anthropic`, the answer: events to deltas, one for each text, thought or piece of a call, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import common_pb2
from services.llm_gateway.protocols.anthropic.events import UsageReport, decode_event
from services.llm_gateway.protocols.anthropic.thinking_blocks import KIND, ThinkingBlocks
from services.llm_gateway.protocols.common.answer import Answer
from services.llm_gateway.protocols.common.call_ids import CallIds
from services.llm_gateway.protocols.common.provider_state import to_state
from services.llm_gateway.provider_errors.error_object import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.llm_gateway.protocols.anthropic.events import Block, Delta
    from services.llm_gateway.protocols.common.answer import Give

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""The contract's word for Anthropic's; any other is a stop."""


class AnthropicAnswer(Answer):
    """Reads the events of a message."""

    __slots__ = ("_by_index", "_complete_calls", "_ids", "_is_output_known", "_stop_reason", "_thinking", "_usage")

    def __init__(self, provider: str, model: str, taken_call_ids: Iterable[str], secret: str, give: Give) -> None:
        super().__init__(provider, model, secret, give)
        self._ids = CallIds(taken_call_ids)
        self._by_index: dict[int, int] = {}
        """The block's index to our index of its call."""
        self._complete_calls: set[int] = set()
        """Blocks whose input came whole."""
        self._thinking: ThinkingBlocks | None = None
        self._stop_reason: str | None = None
        self._usage = UsageReport()
        self._is_output_known = False
        """message_start counts one token or so; what counts comes with message_delta."""

    def _read(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        try:
            read = decode_event(data)
        except UNREADABLE as error:
            read = self._decoded_again(decode_event, data, error)
        if read.error:
            raise self._failure(read.error)
        index = read.index or 0
        if read.delta is not None:
            self._carried(index, read.delta)
        elif read.content_block is not None:
            self._begun(index, read.content_block)
        elif read.message is not None and read.message.usage is not None:
            self._count(read.message.usage)
        if read.usage is not None:
            self._count(read.usage)
            self._is_output_known = self._is_output_known or read.usage.output_tokens is not None
        if read.type == "message_stop":
            self._was_done = self.is_over = True
            self._ended()

    def _carried(self, index: int, delta: Delta) -> None:
        if delta.text:
            self._answered(delta.text)
        elif delta.thinking:
            if self._thinking is not None:
                self._thinking.add(index, delta.thinking)
            self._reasoned(delta.thinking)
        elif delta.partial_json:
            self._argued(index, delta.partial_json)
        elif delta.signature and self._thinking is not None:
            self._thinking.sign(index, delta.signature)
        if delta.stop_reason:
            self._stop_reason = delta.stop_reason

    def _begun(self, index: int, block: Block) -> None:
        if block.type == "tool_use":
            self._called(index, block)
        elif block.type in ("thinking", "redacted_thinking"):
            self._thinking = self._thinking or ThinkingBlocks()
            self._thinking.begin(index, block)
            if block.thinking:
                self._reasoned(block.thinking)
        elif block.text:
            self._answered(block.text)

    def _called(self, index: int, block: Block) -> None:
        arguments = bytes(block.input).decode()
        if arguments in ("{}", "null"):
            arguments = ""
        if arguments:
            self._complete_calls.add(index)
        call_index = self._by_index[index] = len(self._by_index)
        self._call(call_index, arguments, self._ids.unique(block.id or ""), block.name or "")

    def _argued(self, index: int, text: str) -> None:
        call_index = self._by_index.get(index)
        if call_index is None or index in self._complete_calls:
            return
        if self._halves is not None:
            text = self._halves.joined(call_index, text)
        if text:
            self._call(call_index, text)

    def _reasoned(self, text: str) -> None:
        if self._halves is not None:
            text = self._halves.joined("reasoning", text)
        if text:
            self._think(text)

    def _answered(self, text: str) -> None:
        if self._halves is not None:
            text = self._halves.joined("content", text)
        if text:
            self._say(text)

    def _ended(self) -> None:
        if self._halves is not None:
            for channel, text in self._halves.rest():
                if channel == "reasoning":
                    self._think(text)
                elif channel == "content":
                    self._say(text)
        if self._thinking is not None:
            self._keep(to_state(self._provider, KIND, self._thinking.items()))
            self._thinking = None

    def _count(self, report: UsageReport) -> None:
        for field in report.__struct_fields__:
            if (value := getattr(report, field)) is not None:
                setattr(self._usage, field, value)

    def _reason(self) -> str | None:
        if self._stop_reason is None:
            return "stop" if self._was_done else None
        return _FINISH.get(self._stop_reason, "stop")

    def usage(self) -> common_pb2.Usage:
        report = self._usage
        read, written = report.cache_read_input_tokens, report.cache_creation_input_tokens
        usage = common_pb2.Usage(
            input_tokens=(report.input_tokens or 0) + (read or 0) + (written or 0),
            output_tokens=(report.output_tokens or 0) if self._is_output_known else self.deltas,
            model_calls=1,
        )
        if not self._is_output_known:
            usage.estimated = True
        if read is not None:
            usage.cached_tokens = read
        details = report.output_tokens_details
        if details is not None and details.thinking_tokens is not None:
            usage.reasoning_tokens = details.thinking_tokens
        return usage
