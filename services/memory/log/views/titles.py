"""What a chat is called: its name, which programs rely on, and its title, which people read."""

from __future__ import annotations

import re

NAME_CODE_POINTS = 10
TITLE_CODE_POINTS = 60
EMPTY = "New chat"

_READ_CODE_POINTS = 1000
"""Code points of a message that a title is made of: the message may have megabytes."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def make_chat_name(message: str) -> str:
    """Return the message's first 10 code points, white space collapsed, without NUL, which some stores refuse."""
    return " ".join(message.replace("\0", " ").split())[:NAME_CODE_POINTS] or EMPTY


def make_first_words(message: str) -> str:
    """Return the message's first words, white space collapsed, up to 60 code points, cut at a word."""
    words = clean_title(message.lstrip()[:_READ_CODE_POINTS])
    if len(words) <= TITLE_CODE_POINTS:
        return words or EMPTY
    end = words.rfind(" ", 0, TITLE_CODE_POINTS + 1)
    # Scripts without spaces, and addresses, are cut anywhere: the last space may stand far before.
    return words[: end if end >= TITLE_CODE_POINTS // 2 else TITLE_CODE_POINTS]


def clean_title(text: str) -> str:
    """Return a text with single spaces, also in place of control characters, which terminals would obey."""
    return " ".join(_CONTROL.sub(" ", text).split())
