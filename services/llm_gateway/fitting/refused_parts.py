"""Parts of a conversation that a provider refuses: without a repair, it would refuse each later request of the chat."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

import structlog

from headrace.errors import HeadraceError, InvalidRequest
from headrace.v1.llm_pb2 import ChatRequest, ContentPart, Message

STATE: Final = "state"

_STATE_WORDS = re.compile(
    r"signature|encrypted content|compaction blob|blocks .{0,80}cannot be modified"
    r"|required (?:following|preceding|'reasoning') item"
    r"|item (?:found )?with id '?\w|input\[\d{1,6}\]\.(?:id|status|phase|summary|encrypted_content)\b"
    r"|continuation identities|without a corresponding \w{1,40}_tool_result|reasoningcontent\b"
    r"|content\.\d{1,4}\.thinking\b",
    re.IGNORECASE,
)
"""Matches what is said of states that the provider made, for example under another key. Item ids:
https://github.com/github/copilot-cli/issues/3594 (2026-05); identities, of Azure:
https://github.com/NousResearch/hermes-agent/pull/106718 (2026-09)."""

_MEDIA_WORDS = {
    "image": re.compile(r"\b(?:image|picture|vision|download|urls?\b|png\b|jpe?g\b)", re.IGNORECASE),
    "audio": re.compile(r"\b(?:audio|sound)", re.IGNORECASE),
    "file": re.compile(r"\b(?:pdf|document|file)s?\b", re.IGNORECASE),
}
"""What errors say of a damaged, protected or too long file, an address that is gone, and media that a model lacks
(https://github.com/anthropics/claude-code/issues/6231, 2025-08, and issues/46127, 2026-04)."""

_ANY_MEDIA_WORDS = re.compile(
    r"multi-?modal|must be a string|should be '(?:input )?text'|type for 'input'|content part", re.IGNORECASE
)
"""Matches refusals that name no kind, of servers that take only texts, or only texts as results of tools
(https://github.com/ggml-org/llama.cpp/issues/23380, https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2248,
2026)."""

WORDS_MAX = 200
"""Maximum characters of an error that a remark repeats."""

log = structlog.get_logger()


def find_refused_parts(messages: Iterable[Message], error: HeadraceError) -> Collection[str]:
    """Return the kinds of parts that the provider's error names, STATE or media, of those that the messages have."""
    if not isinstance(error, InvalidRequest) or "httpStatus" not in error.metadata:
        return ()
    words = _get_words(error)
    named = {kind for kind, pattern in _MEDIA_WORDS.items() if pattern.search(words)}
    if not named and _ANY_MEDIA_WORDS.search(words):
        named = {*_MEDIA_WORDS}
    if _STATE_WORDS.search(words):
        named.add(STATE)
    return named & {
        kind
        for message in messages
        for kind in (STATE if message.provider_state else "", *(_get_kind(part) for part in message.content))
    }


def leave_out_parts(given: ChatRequest, kinds: Collection[str], error: HeadraceError) -> ChatRequest:
    """Return the request without the providers' state, or with a remark in place of each part of these kinds."""
    request = ChatRequest()
    request.CopyFrom(given)
    words = _get_words(error)[:WORDS_MAX]
    for message in request.messages:
        if STATE in kinds:
            message.ClearField("provider_state")
        for part in message.content:
            if (kind := _get_kind(part)) in kinds:
                part.text = f"[{_get_name(part) or kind}, not shown: {words}]"
    log.warning("refused parts left out", provider=given.provider_key, model=given.model, kinds=sorted(kinds))
    return request


def _get_words(error: HeadraceError) -> str:
    """Return the provider's own words, after its name and the model's."""
    return error.message.partition(": ")[2]


def _get_kind(part: ContentPart) -> str:
    return part.WhichOneof("part") or ""


def _get_name(part: ContentPart) -> str:
    if part.WhichOneof("part") == "file":
        return part.file.name
    url = part.image.url or part.audio.url
    return "" if url.startswith("data:") else url
