"""The fields of a frame that are read; all others are ignored."""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """Raw JSON: a string, null, or an object."""


class CallPart(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: msgspec.Raw = msgspec.Raw()

    refusal: str | None = None
    """The text of a model that declines."""

    tool_calls: list[CallPart] | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class UsageReport(msgspec.Struct):
    """Tokens so far; the last report counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_tokens_details: PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for cached tokens."""

    @property
    def says_something(self) -> bool:
        """False for the empty object of some providers."""
        return self.prompt_tokens is not None or self.completion_tokens is not None


class TopLevelError(ErrorObject):
    """An error frame: vLLM's `object: error`, or the data of an `error` event."""

    object: str | None = None


class Frame(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_frame = msgspec.json.Decoder(Frame).decode
decode_top_level_error = msgspec.json.Decoder(TopLevelError).decode
