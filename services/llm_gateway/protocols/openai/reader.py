"""Reads the answer: each data line becomes deltas at once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.v1 import common_pb2
from services.llm_gateway.protocols.common.answer_media import AnswerMedia
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, SendBytes
from services.llm_gateway.protocols.common.reports import drop_impossible, merge_reports, translate_finish
from services.llm_gateway.protocols.openai.frames import (
    AudioPiece,
    CallPart,
    ContentPiece,
    Delta,
    Frame,
    ImagePart,
    Thought,
    UsageReport,
    decode_frame,
    decode_top_level_error,
)
from services.llm_gateway.protocols.openai.reasoning import BLOCKS_KIND, KIND, InlineThinking, ReasoningDetails
from services.llm_gateway.protocols.openai.tool_calls import OpaqueFields, ToolCalls
from services.llm_gateway.provider_errors.refusal import UNREADABLE, ErrorObject

DONE = b"[DONE]"

NO_REASON = "null"
"""Some servers write this text for no finish reason (https://github.com/PowerShell/AIShell, 2025-03)."""

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a frame, which may contain a picture of 10 MiB in base64."""


class OpenAiReader(AnswerReader):
    __slots__ = ("_calls", "_details", "_finish_reason", "_inline", "_media", "_opaque", "_usage")

    def __init__(self, source: AnswerSource, give: SendBytes) -> None:
        super().__init__(source, give, FRAME_BYTES_MAX)
        self._calls = ToolCalls(source.call_ids)
        self._inline: InlineThinking | None = InlineThinking(is_open=source.provider.begins_in_reasoning)
        """None for a provider that separates reasoning itself."""
        self._details: dict[str, ReasoningDetails] = {}
        self._opaque: OpaqueFields | None = None
        self._media: AnswerMedia | None = None
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
            frame = self._decode_again(Frame, data, error)
            if frame is None:
                return
        if frame.error:
            raise self._make_provider_error(frame.error)
        if (status := frame.base_resp) is not None and status.status_code:
            raise self._make_provider_error(ErrorObject(status.status_msg, code=status.status_code))
        if frame.choices is None and frame.usage is None:
            self._refuse_error_frame(data, event)
        if frame.usage is not None:
            self._add_usage(frame.usage)
        if (groq := frame.x_groq) is not None:
            self._add_usage(groq.usage)
            if groq.error:
                raise self._make_provider_error(groq.error)
        for choice in frame.choices or ():
            if choice.delta is not None:
                self._read_delta(choice.delta)
            elif choice.message is not None and not self.deltas:
                self._read_delta(choice.message)
            if choice.error:
                raise self._make_provider_error(choice.error)
            if choice.finish_reason and choice.finish_reason != NO_REASON:
                self._finish_reason = choice.finish_reason
                self.has_finish = True
                self._add_usage(choice.usage)

    def _refuse_error_frame(self, data: bytes, event: str | None) -> None:
        try:
            top = decode_top_level_error(data)
        except UNREADABLE:
            top = None
        if top is not None and (event == "error" or top.object == "error"):
            raise self._make_provider_error(top)
        self._pass_over(data)

    def _read_delta(self, delta: Delta) -> None:
        reasoning = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if isinstance(reasoning, Thought):
            reasoning = reasoning.text
        if delta.reasoning_details or delta.thinking_blocks:
            # OpenRouter and LiteLLM send the same text in both fields.
            texts = (
                self._add_details(KIND, delta.reasoning_details),
                self._add_details(BLOCKS_KIND, delta.thinking_blocks),
            )
            reasoning = reasoning or texts[0] or texts[1]
        if reasoning:
            self._add_reasoning(reasoning)
        if delta.extra_content or delta.reasoning_opaque:
            self._opaque = self._opaque or OpaqueFields()
            self._opaque.add_message_fields(delta)
        if content := delta.content or delta.refusal:
            if isinstance(content, list):
                self._add_pieces(content)
            elif (
                (inline := self._inline) is None
                or self._halves is not None
                or not (inline.before and inline.is_idle)
                or "<" in content
            ):
                self._add_content(content)
            else:
                # Nearly every frame is text that cannot be a marker.
                inline.before = content
                self._send_content(content)
        if delta.images or delta.audio:
            self._add_media(delta.images or (), delta.audio)
        parts = delta.tool_calls or ()
        if delta.function_call is not None and not parts:
            parts = (CallPart(0, function=delta.function_call),)
        for position, part in enumerate(parts):
            piece = self._calls.convert_part(part, position if len(parts) > 1 else None)
            if part.extra_content or part.provider_specific_fields:
                self._opaque = self._opaque or OpaqueFields()
                self._opaque.add_call_fields(self._calls.current_index, part)
            if piece is not None:
                arguments = piece.arguments
                if self._halves is not None:
                    arguments = self._halves.join_text(piece.index, arguments)
                    if not (arguments or piece.id):
                        continue
                self._send_call(piece.index, arguments, piece.id, piece.name)

    def _add_details(self, kind: str, raw: msgspec.Raw) -> str:
        return self._details.setdefault(kind, ReasoningDetails()).add_items(raw) if raw else ""

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

    def _add_pieces(self, pieces: list[ContentPiece]) -> None:
        for piece in pieces:
            if thought := piece.thought:
                self._add_reasoning(thought)
            if piece.text and piece.type != "reasoning":
                self._add_content(piece.text)
            if piece.url:
                self._add_picture(piece.url)

    def _add_media(self, images: Iterable[ImagePart], audio: AudioPiece | None) -> None:
        for image in images:
            self._add_picture(image.url)
        if audio is None:
            return
        if audio.transcript:
            self._add_content(audio.transcript)
        if audio.data:
            # Sent when complete; until then each piece shows that the model is working.
            self.deltas += 1
            self._media = self._media or AnswerMedia()
            self._media.add_sound(audio.data)

    def _add_picture(self, url: str) -> None:
        if url.startswith("data:"):
            self._media = self._media or AnswerMedia()
            self._send_media(self._media.read_picture(url))
        elif url:
            # Addresses from a model are not fetched.
            self._add_content(f"![image]({url})")

    def _add_usage(self, report: UsageReport | None) -> None:
        if report is None:
            return
        drop_impossible(report)
        if not report.says_something:
            return
        self._usage = merge_reports(self._usage, report)

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
            self._send_call(piece.index, piece.arguments, piece.id)
        if self._media is not None and (sound := self._media.take_sound()) is not None:
            self._send_media(sound)
        state = {} if self._opaque is None else self._opaque.build_state()
        state |= {kind: details.items for kind, details in self._details.items() if details.items}
        if state:
            self._send_state(state)
        self._opaque = None
        self._details = {}

    def _map_finish_reason(self) -> str | None:
        if self._finish_reason is None and (self._passed_over or not self._saw_end_mark):
            return None
        return translate_finish(self._finish_reason or "stop", has_calls=self._calls.count > 0)

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        if report is None:
            return common_pb2.Usage(output_tokens=self.deltas, model_calls=1, estimated=True)
        usage = common_pb2.Usage(input_tokens=report.input_tokens, output_tokens=report.output_tokens, model_calls=1)
        if (reasoning := report.reasoning) is not None:
            usage.reasoning_tokens = reasoning
        if (cached := report.cached) is not None:
            usage.cached_tokens = cached
        if written := report.cache_written:
            usage.cache_write_tokens = written
        return usage
