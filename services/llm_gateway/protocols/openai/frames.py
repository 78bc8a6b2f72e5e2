"""The fields of a frame that are read; all others are ignored."""

from __future__ import annotations

import msgspec

from services.llm_gateway.provider_errors.refusal import ErrorObject


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """Raw JSON: a string, null, or an object."""


class CallPart(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: msgspec.Raw = msgspec.Raw()
    """Gemini's signature of its thoughts, for the next request."""

    provider_specific_fields: msgspec.Raw = msgspec.Raw()
    """The same, passed on by LiteLLM."""


class ImageUrl(msgspec.Struct, gc=False):
    url: str = ""


class ImagePart(msgspec.Struct, gc=False):
    image_url: ImageUrl | str | None = None

    @property
    def url(self) -> str:
        found = self.image_url
        return found.url if isinstance(found, ImageUrl) else found or ""


class AudioPiece(msgspec.Struct, gc=False):
    data: str | None = None
    """Base64."""

    transcript: str | None = None


class ContentPiece(ImagePart, gc=False):
    """Content in parts: with reasoning, or with pictures."""

    type: str | None = None
    text: str | None = None
    thinking: str | list[ContentPiece] | None = None
    """Mistral's reasoning."""

    summary: list[ContentPiece] | None = None
    """Databricks' reasoning (https://github.com/databricks/appkit/pull/559, 2026-09)."""

    @property
    def thought(self) -> str:
        pieces = self.summary or self.thinking or (self.text if self.type == "reasoning" else "") or ""
        return pieces if isinstance(pieces, str) else "".join(piece.text or "" for piece in pieces)


class Thought(msgspec.Struct, gc=False):
    text: str | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[ContentPiece] | None = None
    reasoning_content: str | Thought | None = None
    """An object in Envoy's gateway (https://github.com/envoyproxy/ai-gateway/pull/1222, 2025-09)."""

    reasoning: str | None = None
    reasoning_text: str | None = None
    """GitHub Copilot's name, like the next."""

    reasoning_opaque: str | None = None
    """Encrypted reasoning, for the next request."""

    reasoning_details: msgspec.Raw = msgspec.Raw()
    thinking_blocks: msgspec.Raw = msgspec.Raw()

    refusal: str | None = None
    """The text of a refusal by the model."""

    tool_calls: list[CallPart] | None = None
    function_call: Function | None = None
    """A single call in OpenAI's older form, which some servers and relays still send, a few along with `tool_calls`
    (https://github.com/QwenLM/qwen-code/pull/6240, 2026-07)."""

    extra_content: msgspec.Raw = msgspec.Raw()
    images: list[ImagePart] | None = None
    audio: AudioPiece | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """OpenAI's and OpenRouter's count."""

    cache_creation_input_tokens: int | None = None
    """Bailian's."""

    cache_creation_tokens: int | None = None
    """LiteLLM's."""


class UsageReport(msgspec.Struct):
    """Tokens so far."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    given_input: int | None = msgspec.field(name="input_tokens", default=None)
    given_output: int | None = msgspec.field(name="output_tokens", default=None)
    """mlx-vlm's names of the first two (https://github.com/earendil-works/pi/issues/2326, 2026-03)."""

    total_tokens: int | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_tokens_details: PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for cached tokens."""

    cached_tokens: int | None = None
    """Moonshot's."""

    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    """LiteLLM passes on Anthropic's names, but counts both as a part of the prompt
    (https://github.com/BerriAI/litellm/issues/11789, 2025-06)."""

    reasoning_tokens: int | None = None
    """Perplexity's position; its reasoning is not a part of the completion if it is larger
    (https://github.com/bgeneto/open-webui-cost-tracker/issues/6, 2025-05)."""

    @property
    def input_tokens(self) -> int:
        return self.prompt_tokens or self.given_input or 0

    @property
    def output_tokens(self) -> int:
        """Include reasoning that is only a part of the total, as xAI and Gemini's compatible API report it
        (https://docs.x.ai/docs/key-information/consumption-and-rate-limits, 2026-11)."""
        completion = self.completion_tokens or self.given_output or 0
        if (self.reasoning_tokens or 0) > completion:
            return completion + (self.reasoning_tokens or 0)
        hidden = (self.total_tokens or 0) - self.input_tokens - completion
        is_reasoning = hidden != self.cached and self.reasoning in (None, hidden)
        return completion + hidden if hidden > 0 and is_reasoning and self.input_tokens else completion

    @property
    def reasoning(self) -> int | None:
        details = self.completion_tokens_details
        return _find_largest(details and details.reasoning_tokens, self.reasoning_tokens)

    @property
    def cached(self) -> int | None:
        prompt = self.prompt_tokens_details
        own = (self.prompt_cache_hit_tokens, self.cached_tokens, self.cache_read_input_tokens)
        return _find_largest(prompt and prompt.cached_tokens, *own)

    @property
    def cache_written(self) -> int | None:
        prompt = self.prompt_tokens_details or PromptDetails()
        names = (prompt.cache_write_tokens, prompt.cache_creation_input_tokens, prompt.cache_creation_tokens)
        return _find_largest(*names, self.cache_creation_input_tokens)

    @property
    def says_something(self) -> bool:
        """False for the empty object that some providers send."""
        return (self.prompt_tokens, self.completion_tokens, self.given_input, self.given_output) != (None,) * 4


def _find_largest(*counts: int | None) -> int | None:
    """Return the largest known count: some gateways write a zero under one name and the count under another."""
    largest = None
    for count in counts:
        if count is not None and (largest is None or count > largest):
            largest = count
    return largest


class TopLevelError(ErrorObject):
    """An error frame: vLLM's `object: error`, or the data of an `error` event."""

    object: str | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    message: Delta | None = None
    """The whole answer, instead of its deltas or repeated after them."""

    finish_reason: str | None = None
    usage: UsageReport | None = None
    """Moonshot's position of the usage."""

    error: ErrorObject | str | None = None
    """OpenRouter's, along with the finish reason `error`."""


class GroqExtension(msgspec.Struct, gc=False):
    usage: UsageReport | None = None
    error: ErrorObject | str | None = None


class BaseResponse(msgspec.Struct, gc=False):
    status_code: int | None = None
    status_msg: str | None = None


class Frame(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    x_groq: GroqExtension | None = None
    error: ErrorObject | str | None = None
    base_resp: BaseResponse | None = None
    """MiniMax's status, 0 for success (https://platform.minimax.io/docs/api-reference/errorcode, 2026-11)."""


decode_frame = msgspec.json.Decoder(Frame).decode
decode_top_level_error = msgspec.json.Decoder(TopLevelError).decode
