"""Protocol `openai`, the answer: data lines to deltas, one for each thing a frame carries, in order, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BadFrame, ContextLengthExceeded, HeadraceError, ProviderUnavailable
from headrace.sse import SseReader
from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta, LlmFinish
from services.llm_gateway.failures import refusal_in_stream, to_error
from services.llm_gateway.openai_frames import UNREADABLE, UsageReport, decode_frame
from services.llm_gateway.tool_calls import ToolCalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from services.llm_gateway.openai_frames import Delta, ErrorObject

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


class Answer:
    """Reads one answer. Knows at any moment what would have to be said if the stream broke off now."""

    __slots__ = (
        "_calls",
        "_finish_reason",
        "_model",
        "_provider",
        "_reader",
        "_secret",
        "_usage",
        "_was_done",
        "deltas",
        "is_over",
    )

    def __init__(self, provider: str, model: str, taken_call_ids: Iterable[str], secret: str) -> None:
        self._provider = provider
        self._model = model
        self._secret = secret
        self._reader = SseReader()
        self._calls = ToolCalls(taken_call_ids)
        self._finish_reason: str | None = None
        self._usage: UsageReport | None = None
        self._was_done = False
        self.deltas = 0
        """Reasoning, content and tool-call deltas so far."""
        self.is_over = False
        """Whether there is nothing more to feed: `[DONE]` was read, or the stream has ended."""

    def feed(self, chunk: bytes) -> Iterator[LlmDelta]:
        """The deltas of the frames that `chunk` completes; an empty chunk is the stream's end.

        Raises:
            BadFrame: A frame is too large, not JSON, or has a known field of the wrong type.
            HeadraceError: A frame carries an error.
        """
        self.is_over = not chunk
        for frame in self._reader.feed(chunk) if chunk else self._reader.finish():
            yield from self._read(frame.data)

    def _read(self, data: bytes) -> list[LlmDelta]:
        if data == DONE:
            self._was_done = self.is_over = True
            return []
        try:
            frame = decode_frame(data)
        except UNREADABLE as error:
            raise self._bad_frame(data) from error
        if frame.error:
            raise self._failure(frame.error)
        if frame.usage is not None:
            self._usage = frame.usage
        deltas: list[LlmDelta] = []
        for choice in frame.choices or ():
            if choice.delta is not None:
                self._carried(choice.delta, deltas)
            if choice.finish_reason:
                self._finish_reason = choice.finish_reason
        self.deltas += len(deltas)
        return deltas

    def _carried(self, delta: Delta, deltas: list[LlmDelta]) -> None:
        if reasoning := delta.reasoning_content or delta.reasoning:
            deltas.append(LlmDelta(reasoning=reasoning))
        if delta.content:
            deltas.append(LlmDelta(content=delta.content))
        for part in delta.tool_calls or ():
            if (call := self._calls.delta(part)) is not None:
                deltas.append(LlmDelta(tool_call=call))

    def finish(self) -> LlmFinish:
        """How the answer ended.

        Raises:
            ProviderUnavailable: The stream ended before the answer did.
            ContextLengthExceeded: There was no room for even one token.
        """
        if self._finish_reason is None and not self._was_done:
            raise ProviderUnavailable(
                f"provider {self._provider!r} ended the stream before the answer was complete",
                provider=self._provider,
                model=self._model,
            )
        reason = _FINISH.get(self._finish_reason or "", "stop")
        if reason == "length" and not self.deltas:
            raise ContextLengthExceeded(
                f"model {self._model!r} had no room left for an answer", provider=self._provider, model=self._model
            )
        if self._finish_reason is None and self._calls.count:
            reason = "tool_calls"
        return LlmFinish(reason=reason)

    def usage(self) -> common_pb2.Usage:
        """What is known of the cost; without any report, an estimate by our own count: a delta is about a token."""
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

    def _failure(self, error: ErrorObject | str) -> HeadraceError:
        return to_error(refusal_in_stream(self._provider, self._model, error), self._secret)

    def _bad_frame(self, data: bytes) -> BadFrame:
        return BadFrame(
            f"provider {self._provider!r} sent a frame of {len(data)} bytes that is not a chat completion chunk",
            provider=self._provider,
            model=self._model,
            frameSizeBytes=len(data),
        )
