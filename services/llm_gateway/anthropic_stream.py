"""Protocol `anthropic`, the answer: events to deltas, one for each text, thought or piece of a call, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta, ToolCallDelta
from services.llm_gateway.answer import Answer
from services.llm_gateway.anthropic_frames import UsageReport, decode_event
from services.llm_gateway.openai_frames import UNREADABLE
from services.llm_gateway.provider_state import to_state
from services.llm_gateway.thinking_blocks import KIND, ThinkingBlocks
from services.llm_gateway.tool_calls import CallIds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sse import SseFrame
    from services.llm_gateway.anthropic_frames import Block, Delta

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

    def __init__(self, provider: str, model: str, taken_call_ids: Iterable[str], secret: str) -> None:
        super().__init__(provider, model, secret)
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

    def _read(self, frame: SseFrame) -> list[LlmDelta]:
        try:
            event = decode_event(frame.data)
        except UNREADABLE as error:
            event = self._decoded_again(decode_event, frame.data, error)
        if event.error:
            raise self._failure(event.error)
        deltas: list[LlmDelta] = []
        index = event.index or 0
        if event.delta is not None:
            self._carried(index, event.delta, deltas)
        elif event.content_block is not None:
            self._begun(index, event.content_block, deltas)
        elif event.message is not None and event.message.usage is not None:
            self._count(event.message.usage)
        if event.usage is not None:
            self._count(event.usage)
            self._is_output_known = self._is_output_known or event.usage.output_tokens is not None
        self.deltas += len(deltas)
        if event.type == "message_stop":
            self._was_done = self.is_over = True
            deltas += self._ended()
        return deltas

    def _carried(self, index: int, delta: Delta, deltas: list[LlmDelta]) -> None:
        if delta.text:
            self._say("content", delta.text, deltas)
        elif delta.thinking:
            self._think(index, delta.thinking, deltas)
        elif delta.partial_json:
            self._argue(index, delta.partial_json, deltas)
        elif delta.signature and self._thinking is not None:
            self._thinking.sign(index, delta.signature)
        if delta.stop_reason:
            self._stop_reason = delta.stop_reason

    def _begun(self, index: int, block: Block, deltas: list[LlmDelta]) -> None:
        if block.type == "tool_use":
            self._call(index, block, deltas)
        elif block.type in ("thinking", "redacted_thinking"):
            self._thinking = self._thinking or ThinkingBlocks()
            self._thinking.begin(index, block)
            if block.thinking:
                self._say("reasoning", block.thinking, deltas)
        elif block.text:
            self._say("content", block.text, deltas)

    def _call(self, index: int, block: Block, deltas: list[LlmDelta]) -> None:
        arguments = bytes(block.input).decode()
        if arguments in ("{}", "null"):
            arguments = ""
        if arguments:
            self._complete_calls.add(index)
        call_index = self._by_index[index] = len(self._by_index)
        call_id = self._ids.unique(block.id or "")
        call = ToolCallDelta(index=call_index, id=call_id, name=block.name or "", arguments=arguments)
        deltas.append(LlmDelta(tool_call=call))

    def _think(self, index: int, text: str, deltas: list[LlmDelta]) -> None:
        if self._thinking is not None:
            self._thinking.add(index, text)
        self._say("reasoning", text, deltas)

    def _argue(self, index: int, text: str, deltas: list[LlmDelta]) -> None:
        call_index = self._by_index.get(index)
        if call_index is None or index in self._complete_calls:
            return
        if self._halves is not None:
            text = self._halves.joined(call_index, text)
        if text:
            deltas.append(LlmDelta(tool_call=ToolCallDelta(index=call_index, arguments=text)))

    def _say(self, kind: str, text: str, deltas: list[LlmDelta]) -> None:
        if self._halves is not None:
            text = self._halves.joined(kind, text)
        if text:
            deltas.append(LlmDelta(reasoning=text) if kind == "reasoning" else LlmDelta(content=text))

    def _ended(self) -> list[LlmDelta]:
        deltas: list[LlmDelta] = []
        if self._halves is not None:
            for kind, text in self._halves.rest():
                if isinstance(kind, str):
                    self._say(kind, text, deltas)
        self.deltas += len(deltas)
        if self._thinking is not None:
            deltas.append(LlmDelta(provider_state=to_state(self._provider, KIND, self._thinking.items())))
            self._thinking = None
        return deltas

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
