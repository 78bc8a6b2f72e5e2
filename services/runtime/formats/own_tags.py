"""Tags that mean what they say only where the server wrote them: in everything else their `<` is written `&lt;`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Iterable

_GAP = r"[\s\pZ\pC]*"
"""Spaces, invisible ones included."""

_TAGS = {name: re2.compile(rf"(?i)<({_GAP}/?{_GAP}{name}\b)") for name in ("system_reminder", "speaker")}


def format_reminder(texts: Iterable[str]) -> str:
    text = "\n".join(text for text in texts if text)
    return f"<system_reminder>\n{text}\n</system_reminder>" if text else ""


def has_tag(text: str, name: str) -> bool:
    return "<" in text and _TAGS[name].search(text) is not None


def neutralise_tag(text: str, name: str) -> str:
    """Return a text from outside in which nothing looks like our tag of that name."""
    return _TAGS[name].sub(r"&lt;\1", text) if "<" in text else text
