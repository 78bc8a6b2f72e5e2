"""A user's own words, apart from what the suite puts beside them."""

from __future__ import annotations

import re
from typing import Any

REMINDER = re.compile(r"(?:\n\n)?<system_reminder>.*?</system_reminder>", re.DOTALL)
UPLOAD = re.compile(r"(?:^|\n\n)\[(?:(?:File|image|audio|pdf): |in the result of )[^\]\n]*\].*", re.DOTALL)
"""Matches the label of a file that the model is shown, and all text behind it."""


def read_texts(content: Any) -> list[str]:
    """Return the texts of a message's content, which is one text or a list of parts, without reminders and uploads."""
    texts = (UPLOAD.sub("", drop_reminders(part)).strip() for part in _list_parts(content))
    return [text for text in texts if text]


def drop_reminders(text: str) -> str:
    return REMINDER.sub("", text)


def read_reminder(content: Any) -> str:
    return "\n".join(text for part in _list_parts(content) for text in REMINDER.findall(part))


def _list_parts(content: Any) -> list[str]:
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
    return [part for part in parts if isinstance(part, str)]
