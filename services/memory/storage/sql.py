"""Runs the SQL of records: in PostgreSQL, or in a SQLite file next to the logs.

Statements have numbered marks ($1), change no data in WITH, and use no type or function specific to one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL and the values of its marks."""

Decision: TypeAlias = tuple[Sequence[Statement], T]
"""The statements of a transaction, and the result for its caller."""


NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoreState:
    """State that the polls of all services compare, read at once. Times are Unix milliseconds."""

    revisions: dict[str, int]
    """The last change's revision, by counter (see Kind)."""
    erasures: int
    """Changes with every change of an erasure."""
    next_schedule_at: int
    """When the first schedule begins a run; 0: none does."""
    next_run_at: int
    """When the first unfinished run loses its owner, or is due; NEVER: none does."""
    read_s: float
    """When it was read, by `monotonic_s`."""


class StatementRunner(Protocol):
    @property
    def state(self) -> StoreState | None:
        """The state a short time ago; None: polls must read the tables."""
        ...

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
