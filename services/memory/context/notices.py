"""Words that stand for lines which a request does not show."""

from __future__ import annotations

LEFT_OUT = "left out"
"""The form of a message that says so, before the lines' numbers."""


def format_notice(first_n: int, last_n: int) -> str:
    lines = f"{first_n}-{last_n}"
    return f"[Lines {lines} of this chat are left out here, without a summary: read_history {lines} has them.]"
