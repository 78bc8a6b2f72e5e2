"""Counts the tokens that a provider which caches prompts by itself would read from its cache, as OpenAI does (2026-11).

That are prefixes of 1,024 tokens and more that an earlier request had too, in steps of 128 tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

import orjson

CHARS_PER_TOKEN = 4
STEP = 128 * CHARS_PER_TOKEN
CHARS_MIN = 1024 * CHARS_PER_TOKEN

PREFIXES_MAX = 100_000
"""Prefixes kept, some 10 MB."""


class PrefixCache:
    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def measure(self, body: dict[str, Any], prompt_tokens: int) -> int:
        """Return the tokens at the request's beginning that an earlier one had too, and keep its prefixes."""
        parts = [orjson.dumps(body.get(name)) for name in ("model", "system", "tools")]
        text = b"\n".join([*parts, *map(orjson.dumps, body.get("messages", []))])
        if len(text) < CHARS_MIN:
            return 0
        digest, found, at = blake2b(digest_size=16), 0, 0
        for end in range(STEP, len(text) + 1, STEP):
            digest.update(text[at:end])
            at, key = end, digest.digest()
            if key in self._known and end >= CHARS_MIN:
                found = end
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > PREFIXES_MAX:
            self._known.popitem(last=False)
        return int(prompt_tokens * found / len(text)) // 128 * 128
