r"""Joins halves of a character in two frames: `"\ud83d"` in one, `"\ude00"` in the next.

UTF-8 has no lone halves, so private characters stand for them until a channel's texts meet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

_FIRST = 0xD800
_PRIVATE = 0xF0000
"""Plane 15 has no assigned characters."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""Matches any escape; the group is a lone half."""

_HIGH_HALF = re.compile("[\U000f0000-\U000f03ff]")
_HALVES = re.compile("[\U000f0000-\U000f07ff]+")


def mark_lone_halves(data: bytes) -> bytes:
    return _ESCAPE.sub(_mark_half, data)


def _mark_half(match: re.Match[bytes]) -> bytes:
    half = match[1]
    return match[0] if half is None else chr(int(half, 16) - _FIRST + _PRIVATE).encode()


class HalfJoiner:
    def __init__(self) -> None:
        self._held: dict[Hashable, str] = {}

    def join_text(self, channel: Hashable, text: str) -> str:
        """Join `text` to its channel's held half; a first half at its end is held."""
        text = self._held.pop(channel, "") + text
        if text and _HIGH_HALF.match(text[-1]):
            self._held[channel] = text[-1]
            text = text[:-1]
        return _HALVES.sub(_decode_halves, text)

    def take_rest(self) -> list[tuple[Hashable, str]]:
        """Return U+FFFD for each incomplete half, by channel."""
        alone = [*self._held]
        self._held.clear()
        return [(channel, "\ufffd") for channel in alone]


def _decode_halves(match: re.Match[str]) -> str:
    halves = b"".join((ord(char) - _PRIVATE + _FIRST).to_bytes(2, "little") for char in match[0])
    return halves.decode("utf-16-le", errors="replace")
