"""Reasoning inside the answer text, between `<think>` and `</think>`, as models write it whose server does not sort it.

Every text goes on at once; only the last bytes wait, at most seven, while they may still turn out to be a marker.
Markers are given to nobody. A `<think>` right after a quote or backtick is one that the answer talks about: text.
"""

from __future__ import annotations

from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"

_QUOTES = ("`", '"', "'")


class InlineThinking:
    """Sorts the text of one answer into reasoning and content."""

    __slots__ = ("_held", "_is_inside", "before", "is_idle")

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False
        self.is_idle = True
        """Whether a text without `<` would pass as it is: asked for every text, so no property."""
        self.before = ""
        """The text before the next one; its last character tells a quoted marker."""

    def split_text(self, text: str) -> list[tuple[bool, str]]:
        """The pieces of `text`, in order; True for reasoning. None is empty."""
        text, self._held = self._held + text, ""
        pieces: list[tuple[bool, str]] = []
        start = 0
        while (found := self._find_marker(text, start)) >= 0:
            self._append_piece(pieces, text[start:found])
            start = found + len(CLOSE if self._is_inside else OPEN)
            self._is_inside = not self._is_inside
        end = len(text) - self._count_held(text, start)
        self._append_piece(pieces, text[start:end])
        self._held = text[end:]
        self.is_idle = not (self._is_inside or self._held)
        self.before = text[:end] or self.before
        return pieces

    def take_rest(self) -> list[tuple[bool, str]]:
        """What waited, when nothing follows: it was no marker."""
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
        found = text.find(OPEN, start)
        while found >= 0 and self._is_quoted(text, found):
            found = text.find(OPEN, found + 1)
        return found

    def _count_held(self, text: str, start: int) -> int:
        """How many characters at the end may be the beginning of the next marker."""
        at = text.rfind("<", start)
        marker = CLOSE if self._is_inside else OPEN
        if at < 0 or not marker.startswith(text[at:]) or (not self._is_inside and self._is_quoted(text, at)):
            return 0
        return len(text) - at

    def _is_quoted(self, text: str, at: int) -> bool:
        return (text[:at] or self.before).endswith(_QUOTES)
