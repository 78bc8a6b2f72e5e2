"""Markdown building blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any


def format_table(heads: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table; `heads` are its column names, separated by bars."""
    columns = heads.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def code(value: Any) -> str:
    """Return a value as inline code: text unchanged, other values as JSON."""
    return f"`{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}`"


def join_lines(text: str) -> str:
    """Return a docstring or comment as one line."""
    return " ".join(text.split())


def slug(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return join_lines(text).replace("|", "\\|")
