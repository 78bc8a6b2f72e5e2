"""Providers' reports about an answer: finish reasons, and numbers of tokens, some of which are impossible."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

Report = TypeVar("Report", bound=msgspec.Struct)

FAILURES: Final = frozenset(
    {
        "abort",  # vLLM
        "aborted",
        "cancelled",
        "error",  # OpenRouter, Mistral
        "function_call_filter",  # Gemini, like the next two, for a call that it could not read
        "malformed_function_call",
        "unexpected_tool_call",
        "too_many_tool_calls",  # Gemini, like the next five
        "malformed_response",
        "missing_thought_signature",
        "no_image",
        "image_other",
        "malformed_model_output",  # Bedrock, like the next
        "malformed_tool_use",
        "other",
        "insufficient_system_resource",  # DeepSeek
        "network_error",  # Zhipu
        "server_error",
        "timeout",
    }
)
"""Words for answers that broke off at the provider."""

_MEANINGS: Final = {
    "stop": "stop",
    "end": "stop",
    "completed": "stop",
    "done": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "incomplete": "length",  # Responses of vLLM, without details
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    **dict.fromkeys(
        (  # Gemini
            "recitation",
            "language",
            "blocklist",
            "prohibited_content",
            "spii",
            "model_armor",
            "escalation",
            "image_safety",
            "image_prohibited_content",
            "image_recitation",
        ),
        "content_filter",
    ),
}

_WORD_CHARS_MAX = 64

TOKENS_MAX = 1_000_000_000
"""Maximum tokens of a call."""


def translate_finish(word: str, *, has_calls: bool = False) -> str:
    """Return the contract's finish reason, or the provider's word if the contract has none.

    Gemini writes details after a colon, as in `content_filter: SAFETY`. Some servers only say that an answer with calls
    stopped, and Together may give the token that ended it, as in `<|eot_id|>` (https://github.com/vespa-engine/vespa/pull/33327,
    2025-02).
    """
    name = "stop" if word.startswith("<") else word.partition(":")[0].strip().lower()
    reason = _MEANINGS.get(name, name if name in FAILURES else word[:_WORD_CHARS_MAX])
    return "tool_calls" if reason == "stop" and has_calls else reason


def is_known_finish(reason: str) -> bool:
    return reason in _MEANINGS


def merge_reports(known: Report | None, later: Report) -> Report:
    """Take over the numbers of a later report, except zeros, with which some providers end."""
    if known is None:
        return later
    for name in known.__struct_fields__:
        if value := getattr(later, name):
            setattr(known, name, value)
    return known


def drop_impossible(report: msgspec.Struct) -> None:
    """Remove impossible numbers from a report and its parts, as if they were not reported."""
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, msgspec.Struct):
            drop_impossible(value)
        elif isinstance(value, int) and not 0 <= value <= TOKENS_MAX:
            setattr(report, name, None)
