"""The conditions of queries, with values numbered as they are added, and pages of rows that meet them.

A statement reads a limited part of an index. If few of these rows meet the filters, the page is short or empty, and
the next page continues after the last row that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

Entry = TypeVar("Entry")

Place: TypeAlias = tuple[Any, ...]
"""An entry's values in the columns by which the page is ordered."""

SCANNED_MAX = 1_000
"""Maximum rows that the statement of a filtered page reads."""

_FOUND, _LAST_FOUND, _LAST = 0, 1, 2
"""Whether a row meets the filters, and is the last one that the statement reads."""


class Where:
    """Conditions that rows must all meet, with numbered marks ($1) for their values."""

    def __init__(self, *conditions: str) -> None:
        self._conditions = list(conditions)
        self._filters: list[str] = []
        self.values: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def mark(self, value: Any) -> str:
        """Add a value; return its mark."""
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which each `{}` is replaced by a value's mark."""
        self._conditions.append(condition.format(*map(self.mark, values)))

    def add_filter(self, condition: str, *values: Any) -> None:
        """Like `add`, for a condition by which no index finds the rows."""
        self._filters.append(condition.format(*map(self.mark, values)))

    def add_given(self, values: Mapping[str, Any]) -> None:
        """Add conditions such as `kind = {}`, except those with the value None."""
        for condition, value in values.items():
            if value is not None:
                self.add(condition, value)

    def add_filters(self, values: Mapping[str, Any], keys: int = 0) -> None:
        """Like `add_given`, as filters, except the first `keys` of them, which an index serves."""
        given = [(condition, value) for condition, value in values.items() if value is not None]
        for n, (condition, value) in enumerate(given):
            (self.add if n < keys else self.add_filter)(condition, value)

    def add_named(self, column: str, names: Sequence[str]) -> None:
        """Add the filter that `column`, with one name per line, contains any of the names.

        Both engines compare case-sensitively, with any characters.
        """
        tests = " OR ".join(f"replace({column}, {{}}, '') <> {column}" for _ in names)
        self.add_filter(f"({tests})", *(f"\n{name}\n" for name in names))

    def render_page(self, columns: str, table: str, order: str, size: int, joins: str = "") -> str:
        """Return the statement for a page of `table`, and one more row, in an order that an index has.

        In columns, joins and filters the table's name is `page`. The last column is for `split_rows`.
        """
        read = self.mark(SCANNED_MAX if self._filters else size + 1)
        return (
            f"SELECT {columns}, CASE WHEN NOT is_found THEN {_LAST} WHEN row_n = {read} THEN {_LAST_FOUND}"
            f" ELSE {_FOUND} END FROM (SELECT * FROM ("
            f"SELECT *, ({' AND '.join(self._filters) or 'true'}) AS is_found, row_number() OVER (ORDER BY {order}) AS"
            f" row_n FROM (SELECT * FROM {table} WHERE {self} ORDER BY {order} LIMIT {read}) AS page) AS numbered"
            f" WHERE is_found OR row_n = {read} ORDER BY row_n LIMIT {self.mark(size + 1)}) AS page {joins}"
            " ORDER BY row_n"
        )


def split_rows(
    rows: Sequence[Sequence[Any]], size: int, make: Callable[..., Entry], get_place: Callable[[Entry], Place]
) -> tuple[list[Entry], Place | None]:
    """Return a page's entries, and the place after which the next page begins; None if there is none."""
    entries = [make(*row[:-1]) for row in rows]
    if len(rows) > size:
        return entries[:size], get_place(entries[size - 1])
    last = rows[-1][-1] if rows else _FOUND
    after = None if last == _FOUND else get_place(entries[-1])
    return entries[:-1] if last == _LAST else entries, after
