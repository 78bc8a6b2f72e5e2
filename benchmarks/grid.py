"""A table that can be printed or written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text; columns with names that start with `<` hold words and are left-aligned, the others hold
    figures.
    """

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    def printed(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for column in self.columns:
            table.add_column(column.lstrip("<"), justify="left" if column.startswith("<") else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def written(self) -> str:
        """Return the table in Markdown, with the title as a heading."""
        names = " | ".join(column.lstrip("<") for column in self.columns)
        rules = " | ".join(":--" if column.startswith("<") else "--:" for column in self.columns)
        rows = "".join(f"| {' | '.join(row)} |\n" for row in self.rows)
        return f"## {self.title}\n\n| {names} |\n| {rules} |\n{rows}"


def us(value: float) -> str:
    """Return microseconds with the significant digits."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
