"""The conditions of queries, with values numbered as they are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Where:
    """Conditions that rows must all meet, with numbered marks ($1) for their values."""

    def __init__(self, *conditions: str) -> None:
        self._conditions = list(conditions)
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

    def add_given(self, values: Mapping[str, Any]) -> None:
        """Add conditions such as `kind = {}`, except those with the value None."""
        for condition, value in values.items():
            if value is not None:
                self.add(condition, value)

    def add_named(self, column: str, names: Sequence[str]) -> None:
        """Add that `column`, with one name per line, contains any of the names.

        Both engines compare case-sensitively, with any characters.
        """
        tests = " OR ".join(f"replace({column}, {{}}, '') <> {column}" for _ in names)
        self.add(f"({tests})", *(f"\n{name}\n" for name in names))
