"""Reads the answer: each frame becomes deltas at once.

The provider requires an answer's parts back in their order, each with its signature.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

from headrace.errors import ContentFiltered
from headrace.v1 import common_pb2
from services.llm_gateway.fitting.provider_state import CALL, CHARS
from services.llm_gateway.protocols.common.answer_media import AnswerMedia
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, SendBytes
from services.llm_gateway.protocols.common.reports import drop_impossible, merge_reports, translate_finish
from services.llm_gateway.protocols.common.tool_calls import CallIds, read_arguments
from services.llm_gateway.provider_errors.refusal import UNREADABLE, ErrorObject

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a frame, which may contain a picture of 10 MiB in base64."""

KIND: Final = "parts"

SIGNATURE: Final = "thoughtSignature"

GIVEN_ID: Final = "id"
"""Member with the provider's own id of a call, which it requires back if it gave one."""


class FunctionCall(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class Blob(msgspec.Struct, gc=False, rename="camel"):
    mime_type: str | None = None
    data: str | None = None
    """Base64."""


class Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    inline_data: Blob | None = None
    executable_code: msgspec.Raw = msgspec.Raw()
    code_execution_result: msgspec.Raw = msgspec.Raw()
    tool_call: msgspec.Raw = msgspec.Raw()
    """A call of a tool that runs at the provider."""

    tool_response: msgspec.Raw = msgspec.Raw()


class Content(msgspec.Struct, gc=False):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None


class PromptFeedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class UsageReport(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    """Not included in the candidates' tokens."""

    cached_content_token_count: int | None = None
    """Included in the prompt's tokens."""


class Frame(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_frame = msgspec.json.Decoder(Frame).decode


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
                # A relay begins with an empty STOP (https://github.com/Chevey339/kelivo/pull/1002, 2026-09).
                self.has_finish = self.deltas > 0 or candidate.finish_reason != "STOP"
        if (usage := frame.usage_metadata) is not None:
            drop_impossible(usage)
            if usage.prompt_token_count or usage.candidates_token_count:
                self._usage = merge_reports(self._usage, usage)
        if frame.prompt_feedback is not None and (reason := frame.prompt_feedback.block_reason):
            raise ContentFiltered(
                f"provider {self._provider!r} does not answer this request: {reason}",
                provider=self._provider,
                model=self._model,
                providerReason=reason,
            )

    def _read_part(self, part: Part) -> None:
        if (call := part.function_call) is not None:
            given_id = call.id or ""
            self._parts.add_call(given_id, part)
            arguments = read_arguments(call.args) or "{}"
            self._send_call(self._calls, arguments, self._ids.make_unique(given_id), call.name or "")
            self._calls += 1
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

    def _flush_held(self) -> None:
        self._flush_halves()
        if items := self._parts.build_items():
            self._send_state({KIND: items})
        self._parts = AnswerParts()

    def _map_finish_reason(self) -> str | None:
        if self._finish_reason is None:
            return None
        return translate_finish(self._finish_reason, has_calls=self._calls > 0)

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


class AnswerParts:
    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._is_needed = False

    def add_text(self, text: str, part: Part) -> None:
        signature = _get_signature(part)
        last = self._parts[-1] if self._parts else {}
        if CHARS in last and SIGNATURE not in last and not signature:
            last[CHARS] += len(text)
        else:
            self._add({CHARS: len(text)} | signature)

    def add_thought(self, part: Part) -> None:
        """Keep a thought with a signature; the others are only for people."""
        if part.thought_signature:
            self._add({"text": part.text or "", "thought": True} | _get_signature(part))

    def add_call(self, given_id: str, part: Part) -> None:
        self._add({CALL: True} | ({GIVEN_ID: given_id} if given_id else {}) | _get_signature(part))

    def add_opaque(self, part: Part) -> None:
        """Keep the parts of tools that run at the provider, each with its own signature, without which Gemini 3 refuses
        them (https://github.com/router-for-me/CLIProxyAPI/pull/5731, 2026-09)."""
        fields = {
            "executableCode": part.executable_code,
            "codeExecutionResult": part.code_execution_result,
            "toolCall": part.tool_call,
            "toolResponse": part.tool_response,
        }
        kept = {name: orjson.loads(bytes(raw)) for name, raw in fields.items() if raw}
        if kept or part.thought_signature:
            self._is_needed = True
            self._add((kept or {CHARS: 0}) | _get_signature(part))

    def _add(self, part: dict[str, Any]) -> None:
        self._is_needed = self._is_needed or SIGNATURE in part or GIVEN_ID in part
        self._parts.append(part)

    def build_items(self) -> list[dict[str, Any]]:
        """Return the parts; empty if there are only texts and calls."""
        return self._parts if self._is_needed else []


def _get_signature(part: Part) -> dict[str, Any]:
    return {SIGNATURE: part.thought_signature} if part.thought_signature else {}
