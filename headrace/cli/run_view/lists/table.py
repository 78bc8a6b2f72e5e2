"""Rows in columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.cli.run_view.printing import print_text


def print_table(head: Sequence[str], rows: Collection[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Print rows under their head; the columns of `right` end at the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, *rows):
        padded = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(head, cells, widths, strict=True)
        )
        print_text("  ".join(padded).rstrip())
