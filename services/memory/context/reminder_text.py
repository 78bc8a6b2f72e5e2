"""The form of what a model is told beside what was said, which stands behind a message, between tags of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = "system_reminder"
_TAG = re.compile(rf"<(?=/?\s*{_NAME})", re.IGNORECASE)


def format_reminder(texts: Iterable[str]) -> str:
    text = "\n".join(text for text in texts if text)
    return f"<{_NAME}>\n{text}\n</{_NAME}>" if text else ""


def has_reminder_tag(text: str) -> bool:
    return _TAG.search(text) is not None


def neutralise_tag(text: str) -> str:
    """Return a text from outside in which no tag looks like ours."""
    return _TAG.sub("&lt;", text)
