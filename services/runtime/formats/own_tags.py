"""Marks in text: tags reserved for the server, and the fences that models put around an answer.

In text from outside, the `<` of such a tag is written `&lt;`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Iterable


_GAP = r"[\s\pZ\pC]*"
"""Spaces, including invisible ones."""

_TAGS = {name: re2.compile(rf"(?i)<({_GAP}/?{_GAP}{name}\b)") for name in ("system_reminder", "speaker")}


def format_reminder(texts: Iterable[str]) -> str:
    """Return the texts in our tag; the tag's end is escaped in texts, because names in them may come from outside."""
    text = "\n".join(neutralise_tag(text, "system_reminder") for text in texts if text)
    return f"<system_reminder>\n{text}\n</system_reminder>" if text else ""


def has_tag(text: str, name: str) -> bool:
    return "<" in text and _TAGS[name].search(text) is not None


def neutralise_tag(text: str, name: str) -> str:
    """Escape our tag of that name in a text from outside."""
    return _TAGS[name].sub(r"&lt;\1", text) if "<" in text else text


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
