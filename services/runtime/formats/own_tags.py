"""Marks in text: tags reserved for the server, and the fences that models put around an answer.

In text from outside, the `<` of such a tag is written `&lt;`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_GAP = (
    r"[\s\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f\U000f0000-\U0010ffff]*+"
)
"""Spaces, including invisible characters: Unicode's categories Z and C. Taken whole, so that no text is read twice."""

_TAGS = {
    name: re.compile(rf"<(?={_GAP}/?{_GAP}{name}(?![A-Za-z0-9_]))", re.IGNORECASE)
    for name in ("system_reminder", "speaker", "conversation")
}


def format_reminder(texts: Iterable[str]) -> str:
    """Return the texts in our tag; the tag's end is escaped in texts, because names in them may come from outside."""
    text = "\n".join(neutralise_tag(text, "system_reminder") for text in texts if text)
    return f"<system_reminder>\n{text}\n</system_reminder>" if text else ""


def has_tag(text: str, name: str) -> bool:
    return "<" in text and _TAGS[name].search(text) is not None


def neutralise_tag(text: str, name: str) -> str:
    """Escape our tag of that name in a text from outside."""
    return _TAGS[name].sub("&lt;", text) if "<" in text else text


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
