"""Marks in text: tags reserved for the server, and the fences that models put around an answer.

In text from outside, the `<` of such a tag is written `&lt;`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_INVISIBLE = (
    r"\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f\U000f0000-\U0010ffff"
)
"""Unicode's category C, without spaces."""

_GAP, _HIDDEN = rf"[\s{_INVISIBLE}]*+", rf"[{_INVISIBLE}]*+"
"""Taken whole, so that no text is read twice."""

_JOINT = rf"[_\-\u2010-\u2015\uff0d\uff3f\s{_INVISIBLE}]?"


def _describe_tag(name: str) -> str:
    """Return the pattern of the beginning of our tag and of what models take for it: full-width characters, invisible
    ones within the name, another joint between its words."""
    letters = (_JOINT if char == "_" else f"[{char}{chr(ord(char) + 0xFEE0)}]" for char in name)
    return rf"[<\uff1c\ufe64](?={_GAP}[/\uff0f]?{_GAP}{_HIDDEN.join(letters)}(?![A-Za-z0-9_]))"


_TAGS = {
    name: re.compile(_describe_tag(name), re.IGNORECASE) for name in ("system_reminder", "speaker", "conversation")
}

_ASCII_INVISIBLE = re.compile(rf"[^{_INVISIBLE}]").sub("", "".join(map(chr, range(0x80)))).encode()


def format_reminder(texts: Iterable[str]) -> str:
    """Return the texts in our tag; the tag's end is escaped in texts, because names in them may come from outside."""
    text = "\n".join(neutralise_tag(text, "system_reminder") for text in texts if text)
    return f"<system_reminder>\n{text}\n</system_reminder>" if text else ""


def has_tag(text: str, name: str) -> bool:
    return _may_have_tag(text, name) and _TAGS[name].search(text) is not None


def neutralise_tag(text: str, name: str) -> str:
    """Escape our tag of that name in a text from outside."""
    return _TAGS[name].sub("&lt;", text) if _may_have_tag(text, name) else text


def _may_have_tag(text: str, name: str) -> bool:
    if not ("<" in text or "\uff1c" in text or "\ufe64" in text):
        return False
    if not text.isascii():
        return True
    # The pattern takes 40 ms for a megabyte of `<`, in which no other thread runs; this takes 2 ms.
    visible = text.encode().translate(None, _ASCII_INVISIBLE).lower()
    return all(word in visible for word in name.encode().split(b"_"))


def strip_fence(text: str) -> str:
    """Return the content of a code block, if the text is one; otherwise the text."""
    first, newline, rest = text.strip().partition("\n")
    label = first.removeprefix("```").strip()
    if not newline or not first.startswith("```") or not rest.endswith("```"):
        return text
    if label and not label.replace("-", "_").replace("_", "a").isalnum():
        return text
    return rest.removesuffix("```").removesuffix("\n")


def find_between(text: str, opening: str, closing: str) -> str:
    """Return the text from the first `opening` to the last `closing`, both included; empty if it has none."""
    start, end = text.find(opening), text.rfind(closing)
    return text[start : end + len(closing)] if 0 <= start < end else ""
