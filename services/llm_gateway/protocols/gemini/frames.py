"""The fields of a frame that are read; all others are ignored."""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


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
    """Beside those of the candidates."""

    cached_content_token_count: int | None = None
    """Of those of the prompt."""


class Frame(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_frame = msgspec.json.Decoder(Frame).decode
