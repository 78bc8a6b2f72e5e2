"""What a provider's refusal means: its status, words and headers made into one of our errors.

The provider's own message is passed on, shortened and with secrets masked.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    HeadraceError,
    InvalidRequest,
    Overloaded,
    ProviderAuthentication,
    ProviderUnavailable,
    RateLimited,
)
from services.llm_gateway.masking import masked
from services.llm_gateway.openai_frames import UNREADABLE, ErrorObject

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_CHARS_MAX = 500
"""Of the provider's message; what is longer is a page of HTML, or repeats the request."""

_WORDING: tuple[tuple[type[HeadraceError], re.Pattern[str]], ...] = (
    (
        # OpenAI and vLLM; Bailian; SiliconFlow; OpenRouter; MiniMax.
        ContextLengthExceeded,
        re.compile(
            r"context_length_exceeded|maximum context length|context window|range of input length"
            r"|input (?:length|tokens?).{0,40}(?:exceed|too long)|prompt is too long|max_seq_len|too many tokens",
            re.IGNORECASE,
        ),
    ),
    (
        ContentFiltered,
        re.compile(r"content_filter|content_policy|data_inspection_failed|inappropriate content", re.IGNORECASE),
    ),
    (RateLimited, re.compile(r"rate_?limit|too_many_requests|insufficient_quota|throttling", re.IGNORECASE)),
    (Overloaded, re.compile(r"overloaded|server_busy|engine_busy", re.IGNORECASE)),
    (ProviderAuthentication, re.compile(r"invalid_?api_?key|authentication_error|permission_error", re.IGNORECASE)),
)
_TOKENS = re.compile(r"(\d{3,})\s*tokens")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider's no."""

    provider: str
    model: str

    status: int
    """HTTP; 200 for an error object inside a stream."""

    message: str
    words: str
    """Its `type` and `code`, for the wording table."""

    retry_after_s: float | None = None


class _Body(msgspec.Struct):
    """The forms that error bodies have: OpenAI's object, a text, or the fields at the top."""

    error: ErrorObject | str | None = None
    message: str | None = None
    detail: str | None = None
    code: str | int | None = None
    type: str | None = None


def read_refusal(provider: str, model: str, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """The refusal in an HTTP error response, whatever its body is."""
    try:
        read = msgspec.json.decode(body, type=_Body)
    except UNREADABLE:
        read = _Body(message=body.decode(errors="replace"))
    error = read.error if isinstance(read.error, ErrorObject) else ErrorObject(code=read.code, type=read.type)
    text = read.error if isinstance(read.error, str) else error.message or read.message or read.detail or ""
    words = f"{error.type or ''} {error.code or ''}"
    return Refusal(provider, model, status, text, words, _retry_after_s(headers))


def refusal_in_stream(provider: str, model: str, error: ErrorObject | str) -> Refusal:
    """The refusal in an error object of a 200 stream; a numeric code is taken for the status it would have been."""
    if isinstance(error, str):
        return Refusal(provider, model, 200, error, "")
    code = str(error.code or "")
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else 200
    return Refusal(provider, model, status, error.message or "", f"{error.type or ''} {code}")


def to_error(refusal: Refusal, *secrets: str) -> HeadraceError:
    """The error that tells the caller what to do about it."""
    cls = _class_of(refusal)
    said = masked(refusal.message, *secrets)[:MESSAGE_CHARS_MAX].strip() or "no message"
    error = cls(
        f"provider {refusal.provider!r} answered {refusal.status} for model {refusal.model!r}: {said}",
        retry_after_s=refusal.retry_after_s,
        provider=refusal.provider,
        model=refusal.model,
        httpStatus=refusal.status,
    )
    if cls is ContextLengthExceeded:
        error.metadata |= _tokens(refusal.message)
    return error


def _class_of(refusal: Refusal) -> type[HeadraceError]:
    """By status where it is clear; where it says little (400, 413, 422, 200), by the provider's words."""
    match refusal.status:
        case 401 | 402 | 403:
            return ProviderAuthentication
        case 429:
            return RateLimited
        case 503 | 529:
            return Overloaded
        case 408 | 409:
            return ProviderUnavailable
        case 200 | 400 | 413 | 422 | 500:
            found = f"{refusal.words} {refusal.message}"
            by_words = next((cls for cls, wording in _WORDING if wording.search(found)), None)
            if by_words is not None:
                return by_words
        case _:
            pass
    is_callers_fault = 400 <= refusal.status < 500 or "invalid_request" in refusal.words
    return InvalidRequest if is_callers_fault else ProviderUnavailable


def _tokens(message: str) -> dict[str, str]:
    """The two token counts that a message about the context names: the smaller is the limit."""
    counts = {int(number) for number in _TOKENS.findall(message)}
    if not counts:
        return {}
    found = {"maxTokens": str(min(counts))}
    return found | {"currentTokens": str(max(counts))} if len(counts) > 1 else found


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """RFC 9110: seconds or a date."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except ValueError:
        return None
