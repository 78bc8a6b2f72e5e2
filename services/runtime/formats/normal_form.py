"""Normal forms of Unicode for text from outside."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

MARKS_MAX = 64

_MANY_MARKS = re.compile(rf"[^\w\x00-\x7f]{{{MARKS_MAX + 1}}}")
"""Matches where a letter may have more than MARKS_MAX marks; other symbols match, too."""

_SPLIT_INTO_MARKS = frozenset("\u0f73\u0f75\u0f81")
"""Letters that consist of marks alone."""


def normalize_text(form: Literal["NFC", "NFD"], text: str) -> str:
    """Return a text in a normal form, or unchanged if a letter has more than MARKS_MAX marks.

    Python up to 3.13 sorts marks in quadratic time, and no other thread runs meanwhile
    (https://github.com/python/cpython/issues/149079).
    """
    return text if _has_many_marks(text) else unicodedata.normalize(form, text)


def _has_many_marks(text: str) -> bool:
    if text.isascii() or _MANY_MARKS.search(text) is None:
        return False
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or char in _SPLIT_INTO_MARKS else 0
        if marks > MARKS_MAX:
            return True
    return False
