"""Parts of a conversation that a provider refuses: the request is repeated without them, or in the form that the error
names, and the log keeps the original. Without a repair, each later request of the chat would be refused, too.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError, InvalidRequest
from headrace.v1.llm_pb2 import ChatRequest, ContentPart
from services.llm_gateway.fitting.fitted_request import make_nine_characters
from services.llm_gateway.fitting.turns import fit_turns
from services.runtime.newest import NewestDict

_STATE = re.compile(
    r"signature|encrypted content|compaction blob|blocks .{0,80}cannot be modified"
    r"|required (?:following|preceding|'reasoning') item"
    r"|item (?:found )?with id '?\w|input\[\d{1,6}\]\.(?:id|status|phase|summary|encrypted_content)\b"
    r"|continuation identities|without a corresponding \w{1,40}_tool_result|reasoningcontent\b"
    r"|content\.\d{1,4}\.thinking\b",
    re.IGNORECASE,
)
"""Matches errors about states that the provider made, for example under another key. Item ids:
https://github.com/github/copilot-cli/issues/3594 (2026-05); identities, of Azure:
https://github.com/NousResearch/hermes-agent/pull/106718 (2026-09)."""

_MEDIA = {
    "image": re.compile(r"\b(?:image|picture|vision|download|urls?\b|png\b|jpe?g\b)", re.IGNORECASE),
    "audio": re.compile(r"\b(?:audio|sound)", re.IGNORECASE),
    "file": re.compile(r"\b(?:pdf|document|file)s?\b", re.IGNORECASE),
}
"""What errors say of a damaged, protected or too long file, an address that is gone, and media that a model lacks
(https://github.com/anthropics/claude-code/issues/6231, 2025-08, and issues/46127, 2026-04)."""

_ANY_MEDIA = re.compile(
    r"multi-?modal|must be a string|should be '(?:input )?text'|type for 'input'|content part", re.IGNORECASE
)
"""Matches refusals that name no kind, of servers that take only texts, or only texts as results of tools
(https://github.com/ggml-org/llama.cpp/issues/23380, https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2248,
2026)."""

_ORDER = re.compile(
    r"unexpected role '?\w|roles must alternate|should alternate with|expected (?:the )?last role", re.IGNORECASE
)
_CALL_IDS = re.compile(r"tool call id was .{0,80}length of 9", re.IGNORECASE)
"""Match what Mistral's models say on any server, of turns such as a user's after a result
(https://github.com/NousResearch/hermes-agent/issues/20154, 2026-05), and of another model's calls."""

WORDS_MAX = 200
"""Maximum characters of an error that a remark repeats."""

STATES_MAX = 4_096
"""Maximum remembered states; the oldest is dropped first, which costs one more request."""


class RefusedStates:
    """Hashes of the providers' states that a provider has refused, which later requests omit from the start."""

    def __init__(self) -> None:
        self._hashes: NewestDict[int, None] = NewestDict(STATES_MAX)

    def add_dropped(self, given: ChatRequest, accepted: ChatRequest) -> None:
        """Add the states that the accepted request lacks."""
        if given is not accepted:
            kept = {message.provider_state for message in accepted.messages}
            for message in given.messages:
                if message.provider_state and message.provider_state not in kept:
                    self._hashes[hash(message.provider_state)] = None

    def leave_out(self, given: ChatRequest) -> ChatRequest:
        """Return the request without these states; the same object if it has none."""
        if not self._hashes or not any(hash(message.provider_state) in self._hashes for message in given.messages):
            return given
        request = ChatRequest()
        request.CopyFrom(given)
        for message in request.messages:
            if hash(message.provider_state) in self._hashes:
                message.ClearField("provider_state")
        return request


def leave_out_refused(given: ChatRequest, error: HeadraceError) -> ChatRequest | None:
    """Return the request without the parts that the provider's error refuses; None if it has none of them.

    A remark replaces pictures, sounds and files. A refused order of turns becomes a strict one, and refused ids of
    calls get Mistral's form.
    """
    if not isinstance(error, InvalidRequest) or "httpStatus" not in error.metadata:
        return None
    words = error.message.partition(": ")[2]  # without the names of provider and model
    kinds = {kind for kind, pattern in _MEDIA.items() if pattern.search(words)}
    if not kinds and _ANY_MEDIA.search(words):
        kinds = {*_MEDIA}
    request = ChatRequest()
    request.CopyFrom(given)
    if _ORDER.search(words):
        del request.messages[:]
        request.messages.extend(
            fit_turns(given.messages, is_strict=True, results_hold_media=False, has_users_ends=False)
        )
    is_state, are_ids = _STATE.search(words) is not None, _CALL_IDS.search(words) is not None
    for message in request.messages:
        if is_state:
            message.ClearField("provider_state")
        if are_ids and message.tool_call_id:
            message.tool_call_id = make_nine_characters(message.tool_call_id)
        for call in message.tool_calls if are_ids else ():
            call.id = make_nine_characters(call.id)
        for part in message.content:
            if (kind := part.WhichOneof("part") or "") in kinds:
                part.text = f"[{_get_name(part) or kind}, not shown: {words[:WORDS_MAX]}]"
    return None if request == given else request


def _get_name(part: ContentPart) -> str:
    if part.WhichOneof("part") == "file":
        return part.file.name
    url = part.image.url or part.audio.url
    return "" if url.startswith("data:") else url
