"""The items of an answer in their order, which the provider wants back: thoughts and what only it can read unchanged.

https://developers.openai.com/api/docs/guides/reasoning, "Keeping reasoning items in context" (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from services.llm_gateway.protocols.common.answer_order import CALL, CHARS

if TYPE_CHECKING:
    from collections.abc import Hashable

KIND: Final = "output_items"

REASONING: Final = "reasoning"

_OF_MESSAGE = ("type", "id", "role", "status", "phase")
_OF_CALL = ("type", "id", "status")


class AnswerItems:
    def __init__(self) -> None:
        self._items: dict[Hashable, dict[str, Any]] = {}
        self._is_needed = False

    def count_text(self, key: Hashable, text: str) -> None:
        item = self._items.setdefault(key, {"type": "message", "role": "assistant", CHARS: 0})
        if CHARS in item:
            item[CHARS] += len(text)

    def begin_call(self, key: Hashable) -> None:
        self._items.setdefault(key, {"type": "function_call", CALL: True})

    def add_item(self, key: Hashable, kind: str, raw: bytes) -> None:
        """Keep what is to go back of a complete item."""
        item: dict[str, Any] = orjson.loads(raw)
        match kind:
            case "message":
                kept = {name: item[name] for name in _OF_MESSAGE if name in item}
                self._items[key] = kept | {CHARS: self._items.get(key, {}).get(CHARS, 0)}
                self._is_needed = self._is_needed or "phase" in kept
            case "function_call":
                self._items[key] = {name: item[name] for name in _OF_CALL if name in item} | {CALL: True}
            case "reasoning" if not (item.get("encrypted_content") or item.get("content")):
                self._items.pop(key, None)  # a reference to what nobody has stored
            case _:
                item.pop("status", None)
                self._items[key] = item
                self._is_needed = True

    def build_items(self) -> list[dict[str, Any]]:
        """Return the items; none where nothing but texts and calls has come."""
        return [*self._items.values()] if self._is_needed else []
