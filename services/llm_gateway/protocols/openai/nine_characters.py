"""Ids of tool calls for providers that take nine letters and digits alone.

Mistral answers others with 400 "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."
(https://github.com/nearai/ironclaw/issues/1241, 2026-03). Its own ids have that form and are kept; those of other
providers, of callers, and ours for repeated ones are replaced by their hash: a call and its result get the same one, in
each request, and nothing needs to be remembered.
"""

from __future__ import annotations

import hashlib
import re
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.llm_gateway.providers.provider_file import Provider

_CHARACTERS = string.ascii_letters + string.digits
_LENGTH = 9
_FITTING = re.compile(f"[a-zA-Z0-9]{{{_LENGTH}}}")


def fit_call_id(call_id: str, provider: Provider) -> str:
    if provider.call_ids == "any" or _FITTING.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    characters: list[str] = []
    for _ in range(_LENGTH):
        number, at = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[at])
    return "".join(characters)
