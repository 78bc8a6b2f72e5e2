"""Measures text in columns of characters."""

from __future__ import annotations

import unicodedata

from services.tools.documents.blocks import Table, join_text

CHARS_MIN, CHARS_MAX = 3, 40
"""Limits of the length that counts, so that a long text leaves room for short ones."""

PADDING_CHARS = 4
"""Room beside the text of a cell."""

TAB_COLUMNS = 4


def share_width(table: Table, width: float) -> list[float]:
    """Returns the columns' widths: as their longest texts, within limits."""
    columns = zip(*table.rows, strict=True)
    lengths = [max(_clamp(count_width(join_text(cell))) for cell in column) for column in columns]
    return [width * length / sum(lengths) for length in lengths]


def count_width(text: str) -> int:
    """Counts characters, wide ones twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def wrap_code(line: str, columns: int) -> list[str]:
    """Cuts a line of code where it is full."""
    parts, used = [""], 0
    for letter in line.expandtabs(TAB_COLUMNS):
        wide = count_width(letter)
        if used + wide > columns:
            parts.append("")
            used = 0
        parts[-1] += letter
        used += wide
    return parts


def _clamp(length: int) -> int:
    return min(max(length, CHARS_MIN), CHARS_MAX) + PADDING_CHARS
