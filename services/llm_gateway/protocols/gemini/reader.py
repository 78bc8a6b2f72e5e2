"""Reads the answer: each frame becomes deltas at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ContentFiltered
from headrace.v1 import common_pb2
from services.llm_gateway.protocols.common.answer_media import AnswerMedia
from services.llm_gateway.protocols.common.answer_reader import AnswerReader
from services.llm_gateway.protocols.common.call_ids import CallIds
from services.llm_gateway.protocols.common.call_input import read_arguments
from services.llm_gateway.protocols.common.finish_reasons import translate_finish
from services.llm_gateway.protocols.common.provider_state import pack_state
from services.llm_gateway.protocols.common.token_numbers import drop_impossible
from services.llm_gateway.protocols.gemini.answer_parts import KIND, AnswerParts
from services.llm_gateway.protocols.gemini.frames import Frame, UsageReport, decode_frame
from services.llm_gateway.provider_errors.error_object import UNREADABLE

if TYPE_CHECKING:
    from services.llm_gateway.protocols.common.answer_reader import AnswerSource, SendBytes
    from services.llm_gateway.protocols.gemini.frames import FunctionCall, Part

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Size of a frame, which may hold a picture of 10 MiB in base64."""


class GeminiReader(AnswerReader):
    __slots__ = ("_calls", "_finish_reason", "_ids", "_media", "_parts", "_usage")

    def __init__(self, source: AnswerSource, give: SendBytes) -> None:
        super().__init__(source, give, FRAME_BYTES_MAX)
        self._ids = CallIds(source.call_ids)
        self._calls = 0
        self._parts = AnswerParts()
        self._media: AnswerMedia | None = None
        self._finish_reason: str | None = None
        self._usage: UsageReport | None = None

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        try:
            frame = decode_frame(data)
        except UNREADABLE as error:
            frame = self._decode_again(Frame, data, error)
            if frame is None:
                return
        if frame.error:
            raise self._make_provider_error(frame.error)
        for candidate in frame.candidates or ():
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._read_part(part)
            if candidate.finish_reason:
                self._finish_reason = candidate.finish_reason
                self.has_finish = True
        if (usage := frame.usage_metadata) is not None:
            drop_impossible(usage)
            self._usage = usage
        if frame.prompt_feedback is not None and (reason := frame.prompt_feedback.block_reason):
            raise ContentFiltered(
                f"provider {self._provider!r} does not answer this request: {reason}",
                provider=self._provider,
                model=self._model,
                providerReason=reason,
            )

    def _read_part(self, part: Part) -> None:
        if part.function_call is not None:
            self._add_call(part.function_call, part)
        elif part.thought:
            self._parts.add_thought(part)
            self._add_text("reasoning", part.text or "")
        elif part.text:
            self._parts.add_text(self._add_text("content", part.text), part)
        elif (blob := part.inline_data) is not None and blob.data:
            self._media = self._media or AnswerMedia()
            self._send_media(self._media.read_picture(f"data:{blob.mime_type};base64,{blob.data}"))
        else:
            self._parts.add_opaque(part)

    def _add_call(self, call: FunctionCall, part: Part) -> None:
        given_id = call.id or ""
        self._parts.add_call(given_id, part)
        arguments = read_arguments(call.args) or "{}"
        self._send_call(self._calls, arguments, self._ids.make_unique(given_id), call.name or "")
        self._calls += 1

    def _flush_held(self) -> None:
        self._flush_halves()
        if items := self._parts.build_items():
            self._send_state(pack_state(self._provider, {KIND: items}))
        self._parts = AnswerParts()

    def _map_finish_reason(self) -> str | None:
        if self._finish_reason is None:
            return None
        reason = translate_finish(self._finish_reason)
        return "tool_calls" if reason == "stop" and self._calls else reason

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        if report is None:
            return common_pb2.Usage(output_tokens=self.deltas, model_calls=1, estimated=True)
        thoughts = report.thoughts_token_count
        usage = common_pb2.Usage(
            input_tokens=(report.prompt_token_count or 0) + (report.tool_use_prompt_token_count or 0),
            output_tokens=(report.candidates_token_count or 0) + (thoughts or 0),
            model_calls=1,
        )
        if thoughts is not None:
            usage.reasoning_tokens = thoughts
        if report.cached_content_token_count is not None:
            usage.cached_tokens = report.cached_content_token_count
        return usage
