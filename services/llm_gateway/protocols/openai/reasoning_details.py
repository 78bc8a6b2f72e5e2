"""Typed items of reasoning that the next request gives back.

`reasoning_details`: https://openrouter.ai/docs/use-cases/reasoning-tokens; `thinking_blocks`, Claude's as LiteLLM
passes them on: https://docs.litellm.ai/docs/reasoning_content (2026-11).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

KIND: Final = "reasoning_details"
BLOCKS_KIND: Final = "thinking_blocks"

_TEXTS = ("text", "summary", "thinking")


class ReasoningDetails:
    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def add_items(self, raw: msgspec.Raw) -> str:
        """Keep a frame's items and return their text; anything else is ignored."""
        decoded = orjson.loads(bytes(raw))
        items = [item for item in decoded if isinstance(item, dict)] if isinstance(decoded, list) else []
        for item in items:
            self._merge_item(item)
        return "".join(item[key] for item in items for key in _TEXTS if isinstance(item.get(key), str))

    def _merge_item(self, item: dict[str, Any]) -> None:
        last = self.items[-1] if self.items else None
        if last is None or not _continues(item, last):
            self.items.append(item)
            return
        for key, value in item.items():
            if key in _TEXTS and isinstance(value, str):
                said = last.get(key)
                last[key] = said + value if isinstance(said, str) else value
            elif value is not None:
                last[key] = value


def _continues(item: dict[str, Any], last: dict[str, Any]) -> bool:
    """Whether a fragment continues the item before it: same type and index, and a text or a signature to add."""
    if item.get("data") is not None or any(last.get(key) != item.get(key) for key in ("type", "index")):
        return False
    # Where no index tells them apart, a signature is the last of its block.
    return "index" in item or not last.get("signature") or not any(item.get(key) for key in _TEXTS)
