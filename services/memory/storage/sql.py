"""Runs the SQL of records: in PostgreSQL, or in a SQLite file next to the logs.

Statements have numbered marks ($1), change no data in WITH, and use no type or function specific to one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL and the values of its marks."""

Decision: TypeAlias = tuple[Sequence[Statement], T]
"""The statements of a transaction, and the result for its caller."""


class StatementRunner(Protocol):
    async def run(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in one transaction and return the rows of each; writes are durable on return.

        If the response is lost, they run again.
        """
        ...


class Sql(StatementRunner, Protocol):
    async def decide(self, lock: str, read: Statement, decide: Callable[[list[Row]], Decision[T]]) -> T:
        """Read rows and write the result of `decide`, in one transaction; transactions with the same `lock` are
        serialized.

        `decide` may be called again, and in another thread.
        """
        ...

    async def scrub(self, imported: str = "") -> None:
        """Clear traces of deleted rows in the store's own files, and the older files from which rows were imported:
        all, or those named."""
        ...
