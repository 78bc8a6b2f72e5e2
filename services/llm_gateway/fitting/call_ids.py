"""Ids of tool calls as a provider takes them.

OpenAI refuses ids of more than 40 characters, Anthropic other characters than these (2026-05); Mistral answers all but
nine letters and digits with 400 "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."
(https://github.com/nearai/ironclaw/issues/1241, 2026-03). An id that fits is kept. Others are replaced by their hash: a
call and its result get the same one, in each request, and nothing needs to be remembered.
"""

from __future__ import annotations

import hashlib
import re
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.llm_gateway.providers.provider_file import Provider

_PORTABLE = re.compile(r"[a-zA-Z0-9_-]{1,40}")

_CHARACTERS = string.ascii_letters + string.digits
_LENGTH = 9
_NINE_CHARACTERS = re.compile(f"[a-zA-Z0-9]{{{_LENGTH}}}")


def fit_call_id(call_id: str, provider: Provider) -> str:
    if provider.call_ids == "nine_characters":
        return call_id if _NINE_CHARACTERS.fullmatch(call_id) else _make_nine_characters(call_id)
    return call_id if _PORTABLE.fullmatch(call_id) else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def _make_nine_characters(call_id: str) -> str:
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    characters: list[str] = []
    for _ in range(_LENGTH):
        number, at = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[at])
    return "".join(characters)
