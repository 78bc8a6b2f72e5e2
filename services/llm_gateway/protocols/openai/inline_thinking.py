"""Separates reasoning between `<think>` and `</think>` from the answer.

At most seven bytes are held. A `<think>` after a quote or backtick is text.
"""

from __future__ import annotations

from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"

_QUOTES = ("`", '"', "'")


class InlineThinking:
    __slots__ = ("_held", "_is_inside", "before", "is_idle")

    def __init__(self, *, is_open: bool = False) -> None:
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
        while (position := self._find_marker(text, start)) >= 0:
            self._append_piece(pieces, text[start:position])
            start = position + len(CLOSE if self._is_inside else OPEN)
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
            return text.find(CLOSE, start)
        position = text.find(OPEN, start)
        while position >= 0 and self._is_quoted(text, position):
            position = text.find(OPEN, position + 1)
        return position

    def _count_held(self, text: str, start: int) -> int:
        position = text.rfind("<", start)
        marker = CLOSE if self._is_inside else OPEN
        if (
            position < 0
            or not marker.startswith(text[position:])
            or (not self._is_inside and self._is_quoted(text, position))
        ):
            return 0
        return len(text) - position

    def _is_quoted(self, text: str, position: int) -> bool:
        return (text[:position] or self.before).endswith(_QUOTES)
