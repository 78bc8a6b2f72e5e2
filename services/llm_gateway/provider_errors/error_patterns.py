"""Patterns of error messages for causes that the status does not show.

The test's case table has their sources. Rate limits mention tokens too, so order matters.
"""

from __future__ import annotations

import re

from headrace.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    HeadraceError,
    Overloaded,
    ProviderAuthentication,
    RateLimited,
)

_PATTERN_TEXTS: tuple[tuple[type[HeadraceError], str], ...] = (
    # An empty account. Gemini says "exceeded your current quota" of its rate limits, so these words are not among them.
    (ProviderAuthentication, r"insufficient_quota|credit balance is too low|insufficient balance|arrearage"),
    (
        RateLimited,
        r"rate.?limit|too.?many.?requests|throttling|per (?:minute|min|day)\b|\b[tr]pm\b",
    ),
    (
        ContextLengthExceeded,
        r"context_length_exceeded|exceed_context_size|model_context_window_exceeded|string_above_max_length"
        r"|request_too_large|maximum context length|maximum prompt length|context (?:window|length|size|limit)"
        r"|range of input length|prompt (?:is )?too long|max_seq_len|exceeded model token limit|token limit exceeded"
        r"|input (?:token count|tokens?|length).{0,40}(?:exceed|too long)|input is too long"
        r"|reduce the length of the (?:messages|prompt|input)|too many (?:input )?tokens",
    ),
    (
        ContentFiltered,
        r"content.?filter|content.?policy|content management policy|responsibleaipolicyviolation"
        r"|data.?inspection.?failed|inappropriate content|content exists risk|sensitive_words|new_sensitive"
        r"|prohibited_content|moderation|flagged",
    ),
    (Overloaded, r"overloaded|server_busy|engine_busy|system is (?:too )?busy|at capacity"),
    (ProviderAuthentication, r"invalid.?api.?key|authentication_error|permission_error|api key not valid"),
)
_PATTERNS = tuple((cls, re.compile(pattern, re.IGNORECASE)) for cls, pattern in _PATTERN_TEXTS)

_LIMIT = re.compile(
    r"(?:maximum (?:context|prompt|allowed input) length(?: is| of)?|max_seq_len|tokens allowed|token limit:?"
    r"|context (?:size|length|window)(?: of)?|limit of)\s*\(?(?P<named>\d{3,12})"
    r"|(?P<before>\d{3,12}) maximum context|> (?P<compared>\d{3,12})|\[\d+, (?P<range>\d{3,12})\]",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_NUMBER = re.compile(r"\d{3,12}")


def match_error_class(words: str) -> type[HeadraceError] | None:
    return next((cls for cls, wording in _PATTERNS if wording.search(words)), None)


def parse_window_tokens(message: str) -> dict[str, str]:
    message = _THOUSANDS.sub("", message)
    match = _LIMIT.search(message)
    if match is None:
        return {}
    limit = int(match[match.lastgroup or 0])
    others = {int(number) for number in _NUMBER.findall(message)} - {limit}
    # The whole request is larger than the window. If no number is, they are its parts, as in Anthropic's
    # "197202 + 21333 > 200000".
    current = max(others, default=0) if max(others, default=0) > limit else sum(others)
    return {"maxTokens": str(limit)} | ({"currentTokens": str(current)} if current > limit else {})
