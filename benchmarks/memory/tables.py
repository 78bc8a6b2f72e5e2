"""Formats tables."""

from __future__ import annotations

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """Return a table; all columns except the first hold figures."""
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made
