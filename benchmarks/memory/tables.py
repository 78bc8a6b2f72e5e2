"""Formats tables and figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """Return a table; all columns except the first hold figures."""
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made


def ms(times: Sequence[float], percent: int) -> str:
    """Return a percentile of times in seconds, as milliseconds."""
    if len(times) < 2:
        return f"{times[0] * 1000:.2f}"
    return f"{statistics.quantiles(times, n=100, method='inclusive')[percent - 1] * 1000:.2f}"
