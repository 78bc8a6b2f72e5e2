"""Reads the answer: each data line becomes deltas at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import common_pb2
from services.llm_gateway.protocols.common.answer_reader import AnswerReader
from services.llm_gateway.protocols.common.provider_state import pack_state
from services.llm_gateway.protocols.openai.frames import UsageReport, decode_frame, decode_top_level_error
from services.llm_gateway.protocols.openai.inline_thinking import InlineThinking
from services.llm_gateway.protocols.openai.reasoning_details import KIND, ReasoningDetails
from services.llm_gateway.protocols.openai.tool_calls import ToolCalls
from services.llm_gateway.provider_errors.error_object import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.llm_gateway.protocols.common.answer_reader import SendBytes
    from services.llm_gateway.protocols.openai.frames import Delta

DONE = b"[DONE]"

_FINISH = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
"""The contract's finish reasons; any other is a stop."""


class OpenAiReader(AnswerReader):
    __slots__ = ("_calls", "_details", "_finish_reason", "_inline", "_usage")

    def __init__(self, provider: str, model: str, taken_call_ids: Iterable[str], secret: str, give: SendBytes) -> None:
        super().__init__(provider, model, secret, give)
        self._calls = ToolCalls(taken_call_ids)
        self._inline: InlineThinking | None = InlineThinking()
        """None for a provider that separates reasoning itself."""
        self._details: ReasoningDetails | None = None
        self._finish_reason: str | None = None
        self._usage: UsageReport | None = None

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        if data == DONE:
            self._saw_end_mark = self.is_over = True
            self._flush_held()
            return
        try:
            frame = decode_frame(data)
        except UNREADABLE as error:
            frame = self._decode_lone_halves(decode_frame, data, error)
        if frame.error:
            raise self._make_provider_error(frame.error)
        if frame.choices is None and frame.usage is None:
            self._refuse_error_frame(data, event)
        if frame.usage is not None and frame.usage.says_something:
            self._usage = frame.usage
        for choice in frame.choices or ():
            if choice.delta is not None:
                self._read_delta(choice.delta)
            if choice.finish_reason:
                self._finish_reason = choice.finish_reason

    def _refuse_error_frame(self, data: bytes, event: str | None) -> None:
        try:
            top = decode_top_level_error(data)
        except UNREADABLE:
            return
        if event == "error" or top.object == "error":
            raise self._make_provider_error(top)

    def _read_delta(self, delta: Delta) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if delta.reasoning_details:
            self._details = self._details or ReasoningDetails()
            details_text = self._details.add_items(delta.reasoning_details)
            # OpenRouter sends the same text in both fields.
            reasoning = reasoning or details_text
        if reasoning:
            self._add_reasoning(reasoning)
        if content := delta.content or delta.refusal:
            if (inline := self._inline) is None or self._halves is not None or not inline.is_idle or "<" in content:
                self._add_content(content)
            else:
                # Nearly every frame is text that cannot be a marker.
                inline.before = content
                self._send_content(content)
        for part in delta.tool_calls or ():
            if (piece := self._calls.convert_part(part)) is not None:
                arguments = piece.arguments
                if self._halves is not None:
                    arguments = self._halves.join_text(piece.index, arguments)
                    if not (arguments or piece.id):
                        continue
                self._send_call(piece.index, arguments, piece.id, piece.name)

    def _add_reasoning(self, text: str) -> None:
        if self._inline is not None and self._inline.is_idle:
            self._inline = None
        if self._halves is not None:
            text = self._halves.join_text("reasoning", text)
        if text:
            self._send_reasoning(text)

    def _add_content(self, text: str) -> None:
        if self._halves is not None:
            text = self._halves.join_text("content", text)
        if self._inline is not None:
            self._send_pieces(self._inline.split_text(text))
        elif text:
            self._send_content(text)

    def _send_pieces(self, pieces: Iterable[tuple[bool, str]]) -> None:
        for is_reasoning, text in pieces:
            if is_reasoning:
                self._send_reasoning(text)
            else:
                self._send_content(text)

    def _flush_held(self) -> None:
        if self._halves is not None:
            for channel, text in self._halves.take_rest():
                if channel == "reasoning":
                    self._add_reasoning(text)
                elif channel == "content":
                    self._add_content(text)
        if self._inline is not None:
            self._send_pieces(self._inline.take_rest())
        for piece in self._calls.take_rest():
            self._send_call(piece.index, piece.arguments)
        if self._details is not None and self._details.items:
            self._send_state(pack_state(self._provider, KIND, self._details.items))
            self._details = None

    def _map_finish_reason(self) -> str | None:
        if self._finish_reason is None and not self._saw_end_mark:
            return None
        reason = _FINISH.get(self._finish_reason or "", "stop")
        # Some servers send `stop`, or nothing, after calls.
        return "tool_calls" if reason == "stop" and self._calls.count else reason

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        if report is None:
            return common_pb2.Usage(output_tokens=self.deltas, model_calls=1, estimated=True)
        usage = common_pb2.Usage(
            input_tokens=report.prompt_tokens or 0, output_tokens=report.completion_tokens or 0, model_calls=1
        )
        details = report.completion_tokens_details
        if details is not None and details.reasoning_tokens is not None:
            usage.reasoning_tokens = details.reasoning_tokens
        prompt = report.prompt_tokens_details
        cached = report.prompt_cache_hit_tokens if prompt is None else prompt.cached_tokens
        if cached is not None:
            usage.cached_tokens = cached
        return usage
