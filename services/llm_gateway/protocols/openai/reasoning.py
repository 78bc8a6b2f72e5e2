"""Reasoning in the answer: in `<think>` or a tag like it, or as typed items that the next request returns.

At most eleven characters of text are held. A `<think>` after a quote or backtick is text. `reasoning_details`:
https://openrouter.ai/docs/use-cases/reasoning-tokens; `thinking_blocks`, Claude's in LiteLLM's form:
https://docs.litellm.ai/docs/reasoning_content (2026-11).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

OPEN: Final = "<think>"
CLOSE: Final = "</think>"

FIRST: Final = ("<thinking>", "<thought>", "<mm:think>", "<reasoning>", "[THINK]")
"""Markers that count only where an answer begins with them, because later they are rather the answer's own. The last
two are gpt-oss's on Bedrock (https://github.com/CherryHQ/cherry-studio/issues/10225, 2025-09) and Mistral's
(https://github.com/waybarrios/vllm-mlx/pull/599, 2026-06)."""

_QUOTES = ("`", '"', "'")

KIND: Final = "reasoning_details"
BLOCKS_KIND: Final = "thinking_blocks"

_TEXTS = ("text", "summary", "thinking")


class InlineThinking:
    __slots__ = ("_close", "_held", "_is_inside", "before", "is_idle")

    def __init__(self, *, is_open: bool = False) -> None:
        self._close = CLOSE
        self._held = ""
        self._is_inside = is_open
        self.is_idle = not is_open
        """Whether text without `<` passes unchanged."""
        self.before = ""

    def split_text(self, text: str) -> list[tuple[bool, str]]:
        """Return the non-empty pieces of `text` in order, True for reasoning."""
        text, self._held = self._held + text, ""
        pieces: list[tuple[bool, str]] = []
        start = 0
        for marker in () if self.before or self._is_inside else FIRST:
            if text.startswith(marker):
                self._is_inside, self._close, start = True, f"{marker[0]}/{marker[1:]}", len(marker)
            elif marker.startswith(text):
                self._held = text
                self.is_idle = not text
                return []
        while (position := self._find_marker(text, start)) >= 0:
            self._append_piece(pieces, text[start:position])
            start = position + len(self._close if self._is_inside else OPEN)
            self._is_inside = not self._is_inside
        end = len(text) - self._count_held(text, start)
        self._append_piece(pieces, text[start:end])
        self._held = text[end:]
        self.is_idle = not (self._is_inside or self._held)
        self.before = text[:end] or self.before
        return pieces

    def take_rest(self) -> list[tuple[bool, str]]:
        pieces: list[tuple[bool, str]] = []
        self._append_piece(pieces, self._held)
        self._held = ""
        return pieces

    def _append_piece(self, pieces: list[tuple[bool, str]], text: str) -> None:
        if text:
            pieces.append((self._is_inside, text))

    def _find_marker(self, text: str, start: int) -> int:
        if self._is_inside:
            return text.find(self._close, start)
        position = text.find(OPEN, start)
        while position >= 0 and self._is_quoted(text, position):
            position = text.find(OPEN, position + 1)
        return position

    def _count_held(self, text: str, start: int) -> int:
        marker = self._close if self._is_inside else OPEN
        position = text.rfind(marker[0], start)
        if (
            position < 0
            or not marker.startswith(text[position:])
            or (not self._is_inside and self._is_quoted(text, position))
        ):
            return 0
        return len(text) - position

    def _is_quoted(self, text: str, position: int) -> bool:
        return (text[:position] or self.before).endswith(_QUOTES)


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
                before = last.get(key)
                last[key] = before + value if isinstance(before, str) else value
            elif value is not None:
                last[key] = value


def _continues(item: dict[str, Any], last: dict[str, Any]) -> bool:
    """Return whether a fragment continues the previous item: same type and index, and a text or a signature to add."""
    if item.get("data") is not None or any(last.get(key) != item.get(key) for key in ("type", "index")):
        return False
    # Without an index, a signature ends its block.
    return "index" in item or not last.get("signature") or not any(item.get(key) for key in _TEXTS)
