"""Protocol `openai`, the shape of a frame: only what is read, everything optional, unknown fields ignored."""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.error_object import ErrorObject


class Function(msgspec.Struct, gc=False):
    """A call's name and a piece of its arguments."""

    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """A JSON string, null, or from some providers the object itself; raw, so that no number changes. Empty: absent."""


class CallPart(msgspec.Struct, gc=False):
    """A fragment of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """What a frame adds to the answer."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: msgspec.Raw = msgspec.Raw()
    """A list of items, not read unless it is there; empty: absent."""

    refusal: str | None = None
    """OpenAI's word for the answer's text when the model declines."""

    tool_calls: list[CallPart] | None = None


class Choice(msgspec.Struct, gc=False):
    """The one answer that is asked for."""

    delta: Delta | None = None
    finish_reason: str | None = None


class CompletionDetails(msgspec.Struct):
    """Of the completion tokens."""

    reasoning_tokens: int | None = None


class PromptDetails(msgspec.Struct):
    """Of the prompt tokens."""

    cached_tokens: int | None = None


class UsageReport(msgspec.Struct):
    """Tokens spent so far; where it comes more than once, the last counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_tokens_details: PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's word for cached tokens."""

    @property
    def says_something(self) -> bool:
        """Whether it counts tokens; an empty object says nothing."""
        return self.prompt_tokens is not None or self.completion_tokens is not None


class TopLevelError(ErrorObject):
    """An error that is the frame itself: vLLM's `object: error`, or the data of an `error` event."""

    object: str | None = None


class Frame(msgspec.Struct, gc=False):
    """One data line."""

    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


decode_frame = msgspec.json.Decoder(Frame).decode
decode_top_level_error = msgspec.json.Decoder(TopLevelError).decode
