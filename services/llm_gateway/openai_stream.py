"""Protocol `openai`, the answer: data lines to deltas, one for each thing a frame carries, in order, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta
from services.llm_gateway.answer import Answer
from services.llm_gateway.inline_thinking import InlineThinking
from services.llm_gateway.openai_frames import UNREADABLE, UsageReport, decode_frame, decode_top_level_error
from services.llm_gateway.provider_state import to_state
from services.llm_gateway.reasoning_details import KIND, ReasoningDetails
from services.llm_gateway.tool_calls import ToolCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sse import SseFrame
    from services.llm_gateway.openai_frames import Delta

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
"""The contract's word for a provider's; any other is a stop."""


class OpenAiAnswer(Answer):
    """Reads the chunks of a chat completion."""

    __slots__ = ("_calls", "_details", "_finish_reason", "_inline", "_usage")

    def __init__(self, provider: str, model: str, taken_call_ids: Iterable[str], secret: str) -> None:
        super().__init__(provider, model, secret)
        self._calls = ToolCalls(taken_call_ids)
        self._inline: InlineThinking | None = InlineThinking()
        """None for a provider that sorts the reasoning itself: there a marker is the model's own text."""
        self._details: ReasoningDetails | None = None
        self._finish_reason: str | None = None
        self._usage: UsageReport | None = None

    def _read(self, frame: SseFrame) -> list[LlmDelta]:
        data = frame.data
        if data == DONE:
            self._was_done = self.is_over = True
            return self._ended()
        try:
            read = decode_frame(data)
        except UNREADABLE as error:
            read = self._decoded_again(decode_frame, data, error)
        if read.error:
            raise self._failure(read.error)
        if read.choices is None and read.usage is None:
            self._refuse_error_frame(frame)
        if read.usage is not None and read.usage.says_something:
            self._usage = read.usage
        deltas: list[LlmDelta] = []
        for choice in read.choices or ():
            if choice.delta is not None:
                self._carried(choice.delta, deltas)
            if choice.finish_reason:
                self._finish_reason = choice.finish_reason
        self.deltas += len(deltas)
        return deltas

    def _refuse_error_frame(self, frame: SseFrame) -> None:
        """Raise what a frame without anything else says, if it is an error itself."""
        try:
            top = decode_top_level_error(frame.data)
        except UNREADABLE:
            return
        if frame.event == "error" or top.object == "error":
            raise self._failure(top)

    def _carried(self, delta: Delta, deltas: list[LlmDelta]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if delta.reasoning_details:
            self._details = self._details or ReasoningDetails()
            said = self._details.take(delta.reasoning_details)
            # OpenRouter says the same in both.
            reasoning = reasoning or said
        if reasoning:
            self._reasoned(reasoning, deltas)
        if content := delta.content or delta.refusal:
            if (inline := self._inline) is None or self._halves is not None or not inline.is_idle or "<" in content:
                self._answered(content, deltas)
            else:
                # What nearly every frame is: text that cannot be a marker.
                inline.before = content
                deltas.append(LlmDelta(content=content))
        for part in delta.tool_calls or ():
            if (call := self._calls.delta(part)) is not None:
                if self._halves is not None:
                    call.arguments = self._halves.joined(call.index, call.arguments)
                    if not (call.arguments or call.id):
                        continue
                deltas.append(LlmDelta(tool_call=call))

    def _reasoned(self, text: str, deltas: list[LlmDelta]) -> None:
        if self._inline is not None and self._inline.is_idle:
            self._inline = None
        if self._halves is not None:
            text = self._halves.joined("reasoning", text)
        if text:
            deltas.append(LlmDelta(reasoning=text))

    def _answered(self, text: str, deltas: list[LlmDelta]) -> None:
        if self._halves is not None:
            text = self._halves.joined("content", text)
        if self._inline is not None:
            deltas += _sorted(self._inline.sorted(text))
        elif text:
            deltas.append(LlmDelta(content=text))

    def _ended(self) -> list[LlmDelta]:
        deltas: list[LlmDelta] = []
        if self._halves is not None:
            for channel, text in self._halves.rest():
                if channel == "reasoning":
                    self._reasoned(text, deltas)
                elif channel == "content":
                    self._answered(text, deltas)
        if self._inline is not None:
            deltas += _sorted(self._inline.rest())
        deltas += [LlmDelta(tool_call=call) for call in self._calls.rest()]
        self.deltas += len(deltas)
        if self._details is not None and self._details.items:
            deltas.append(LlmDelta(provider_state=to_state(self._provider, KIND, self._details.items)))
            self._details = None
        return deltas

    def _reason(self) -> str | None:
        if self._finish_reason is None and not self._was_done:
            return None
        reason = _FINISH.get(self._finish_reason or "", "stop")
        # Some servers say stop, or nothing, after calls.
        return "tool_calls" if reason == "stop" and self._calls.count else reason

    def usage(self) -> common_pb2.Usage:
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


def _sorted(pieces: Iterable[tuple[bool, str]]) -> list[LlmDelta]:
    return [LlmDelta(reasoning=text) if is_reasoning else LlmDelta(content=text) for is_reasoning, text in pieces]
