"""Parts of a conversation that a provider refuses: the request is repeated without them, and the log keeps them.

They are in every later request of the chat, too, so a refusal would end it.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError, InvalidRequest
from headrace.v1.llm_pb2 import ChatRequest
from services.llm_gateway.fitting.turns import is_media

_STATE = re.compile(
    r"signature|encrypted content|compaction blob|blocks .{0,80}cannot be modified"
    r"|required (?:following|preceding|'reasoning') item"
    r"|item (?:found )?with id '?\w|input\[\d{1,6}\]\.(?:id|status|phase|summary|encrypted_content)\b"
    r"|continuation identities|without a corresponding \w{1,40}_tool_result",
    re.IGNORECASE,
)
"""Matches what is said of states that the provider made, for example under another key. Item ids:
https://github.com/github/copilot-cli/issues/3594 (2026-05); identities, of Azure:
https://github.com/NousResearch/hermes-agent/pull/106718 (2026-09)."""

_MEDIA = {
    "image": re.compile(r"image|picture|vision|\bpng\b|\bjpe?g\b", re.IGNORECASE),
    "audio": re.compile(r"audio", re.IGNORECASE),
    "file": re.compile(r"\bfile|\bpdf\b|document", re.IGNORECASE),
}
_ANY_MEDIA = re.compile(
    r"multi-?modal|must be a string|should be '(?:input )?text'|type for 'input'|content part", re.IGNORECASE
)
"""Matches refusals that name no kind, of servers that take only texts, or only texts as results of tools
(https://github.com/ggml-org/llama.cpp/issues/23380, https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2248,
2026)."""

_INSTRUCTIONS = re.compile(
    r"system role (?:is )?not supported|does not support 'system'|developer instruction is not enabled", re.IGNORECASE
)
"""Matches what templates without instructions and Gemma's servers say
(https://github.com/QuantumNous/new-api/issues/989, 2025-04)."""


def leave_out_refused(given: ChatRequest, error: HeadraceError) -> ChatRequest | None:
    """Return the request without the parts that the provider's error refuses; None if it has none of them.

    A remark replaces pictures, sounds and files. Instructions become a message of the user.
    """
    if not isinstance(error, InvalidRequest) or "httpStatus" not in error.metadata:
        return None
    said = error.message.partition(": ")[2]  # without the names of provider and model
    request = ChatRequest()
    request.CopyFrom(given)
    kinds = {kind for kind, words in _MEDIA.items() if words.search(said)}
    kinds = kinds or (_MEDIA.keys() if _ANY_MEDIA.search(said) else set[str]())
    is_state, are_instructions = _STATE.search(said) is not None, _INSTRUCTIONS.search(said) is not None
    for message in request.messages:
        if is_state:
            message.ClearField("provider_state")
        if are_instructions and message.role == "system":
            message.role = "user"
        for part in message.content:
            if is_media(part) and (kind := part.WhichOneof("part")) in kinds:
                part.text = f"[{kind} not shown: the model's provider refuses it]"
    return None if request == given else request
