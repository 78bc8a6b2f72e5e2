"""Where the SQL of records runs: in PostgreSQL, or in a SQLite file beside the logs.

Statements have numbered marks ($1), change data in no WITH, and use no type or function of one engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL and the values of its marks."""

Decision: TypeAlias = tuple[Sequence[Statement], T]
"""What a transaction writes, and what its caller gets."""


class StatementRunner(Protocol):
    async def run(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in one transaction and return the rows of each. What they write is durable when this returns.

        If the answer is lost, they run again.
        """
        ...


class Sql(StatementRunner, Protocol):
    async def decide(self, lock: str, read: Statement, decide: Callable[[list[Row]], Decision[T]]) -> T:
        """Read rows and write what `decide` makes of them, in one transaction; transactions of one `lock` follow each
        other. `decide` may be called again, and in another thread."""
        ...

    async def scrub(self, imported: str = "") -> None:
        """Clear what deleted rows have left in files of the store's own, and the older files that rows were imported
        from: all of them, or those named."""
        ...
