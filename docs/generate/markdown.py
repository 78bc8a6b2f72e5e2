"""Pieces of markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any


def format_table(heads: str, rows: Iterable[Iterable[str]]) -> str:
    """A table; `heads` are its column names with a bar between."""
    columns = heads.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def code(value: Any) -> str:
    """A value as code: text as it is, anything else as JSON."""
    return f"`{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}`"


def join_lines(text: str) -> str:
    """A docstring or comment as one line."""
    return " ".join(text.split())


def slug(heading: str) -> str:
    """The anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return join_lines(text).replace("|", "\\|")
