"""The queries about what was spent, in SQL that both engines take."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from services.memory.storage.spend.rows import SUM_NAMES, SpendSum

GROUPS = ("day", "user_name", "agent_key", "model", "credential")
"""Columns that rows can be grouped by."""

ROWS_MAX = 5000
"""More than a page or a spreadsheet shows well."""

_SUMS = ", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint)" for name in SUM_NAMES)


@dataclass(frozen=True, slots=True)
class SpendQuery:
    tenant: str
    first_day: int
    last_day: int
    """Days since 1970-01-01, both included."""
    groups: Collection[str] = ()
    """Some of GROUPS."""
    wanted: dict[str, str] = field(default_factory=dict[str, str])
    """Values that columns must have."""

    @property
    def columns(self) -> list[str]:
        return [name for name in GROUPS if name in self.groups]

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement of the rows, one more than there may be, with numbered marks ($1), and its values."""
        where, values = self._render_where()
        columns = ", ".join(self.columns)
        order = ", ".join([*(["day"] if "day" in self.groups else []), f"sum(cost_nano_usd) DESC, {columns}"])
        rest = f"GROUP BY {columns} ORDER BY {order} LIMIT {ROWS_MAX + 1}"
        return f"SELECT {columns}, {_SUMS} FROM spend WHERE {where} {rest}", values

    def render_total(self) -> tuple[str, list[Any]]:
        where, values = self._render_where()
        return f"SELECT {_SUMS} FROM spend WHERE {where}", values

    def _render_where(self) -> tuple[str, list[Any]]:
        values: list[Any] = [self.tenant, self.first_day, self.last_day]
        conditions = ["tenant = $1", "day BETWEEN $2 AND $3"]
        for column, value in self.wanted.items():
            values.append(value)
            conditions.append(f"{column} = ${len(values)}")
        return " AND ".join(conditions), values


@dataclass(frozen=True, slots=True)
class SpendGroup:
    """A row of an answer: values of the columns that were asked for."""

    columns: dict[str, Any]
    total: SpendSum


@dataclass(frozen=True, slots=True)
class SpendAnswer:
    groups: list[SpendGroup]
    total: SpendSum

    @classmethod
    def from_rows(cls, query: SpendQuery, rows: Collection[Collection[Any]], total: Collection[int]) -> SpendAnswer:
        names = query.columns
        groups = [
            SpendGroup(dict(zip(names, row, strict=False)), SpendSum(*[*row][len(names) :])) for row in map(tuple, rows)
        ]
        whole = SpendSum(*total)
        return cls(groups if names else [SpendGroup({}, whole)], whole)
