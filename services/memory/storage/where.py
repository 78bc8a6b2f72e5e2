"""The conditions of queries, whose values are numbered as they are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Where:
    """Conditions that rows must meet, all of them, with numbered marks ($1) for their values."""

    def __init__(self, *conditions: str) -> None:
        self._conditions = list(conditions)
        self.values: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def mark(self, value: Any) -> str:
        """Return the mark of one more value."""
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which each `{}` stands for a value."""
        self._conditions.append(condition.format(*map(self.mark, values)))

    def add_given(self, values: Mapping[str, Any]) -> None:
        """Add conditions such as `kind = {}`, except those whose value is None."""
        for condition, value in values.items():
            if value is not None:
                self.add(condition, value)

    def add_named(self, column: str, names: Sequence[str]) -> None:
        """Add that `column`, in which each name is a line, has one of the names.

        Both engines take this form, with regard to case, whatever the names consist of.
        """
        tests = " OR ".join(f"replace({column}, {{}}, '') <> {column}" for _ in names)
        self.add(f"({tests})", *(f"\n{name}\n" for name in names))
