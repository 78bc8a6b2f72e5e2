"""A user's own words, apart from what the suite puts beside them."""

from __future__ import annotations

import re
from typing import Any

REMINDER = re.compile(r"<system_reminder>.*?</system_reminder>", re.DOTALL)
UPLOAD = re.compile(r"\[(?:(?:File|image|audio|pdf): |in the result of )[^\]\n]*\]")
"""Label of a file that is shown to the model: an upload, or one of a tool's result."""


def read_texts(content: Any) -> list[str]:
    """Return the texts of a message's content, which is one text or a list of parts, without reminders and uploads."""
    texts = (REMINDER.sub("", part).strip() for part in _list_parts(content) if not UPLOAD.match(part))
    return [text for text in texts if text]


def read_reminder(content: Any) -> str:
    return "\n".join(text for part in _list_parts(content) for text in REMINDER.findall(part))


def _list_parts(content: Any) -> list[str]:
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
    return [part for part in parts if isinstance(part, str)]
