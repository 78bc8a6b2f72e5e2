"""The tables of a modelled database: a SQLite file with the committed rows, which has one writer at a time."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg

from trials.simulation.postgres.dialect import Rows, Translated, expand, iterate_values

Row: TypeAlias = "tuple[Any, ...]"

CONNECT: Any = sqlite3.connect
"""The original function: a world replaces `sqlite3.connect` with one that watches the files of the other store."""

STATEMENTS_MAX = 1000
"""Prepared statements that a connection keeps: those of the store, with each of their numbers of rows."""

REFUSALS: dict[str, type[asyncpg.PostgresError]] = {
    "UNIQUE": asyncpg.UniqueViolationError,
    "FOREIGN KEY": asyncpg.ForeignKeyViolationError,
    "NOT NULL": asyncpg.NotNullViolationError,
}
"""PostgreSQL's errors for SQLite's refusals, by the first words of the message."""


class Tables:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.notices: list[tuple[str, str]] = []
        """Channel and text of each notification of the running statement."""
        self._place = 0
        self.committed, self.writer = self._connect(), self._connect()
        """A connection that reads the committed rows, and the connection of the one writing transaction."""

    def _connect(self) -> sqlite3.Connection:
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
        database = CONNECT(self._path, cached_statements=STATEMENTS_MAX, **options)
        for pragma in ("journal_mode=WAL", "synchronous=OFF", "foreign_keys=ON", "case_sensitive_like=ON"):
            database.execute(f"PRAGMA {pragma}")
        database.create_function("nextval", 1, self._take_place)
        database.create_function("pg_notify", 2, self._notify)
        for name, count in (("hashtextextended", 2), ("pg_advisory_xact_lock", 1)):
            database.create_function(name, count, _take_key)
        return database

    def close(self) -> None:
        self.committed.close()
        self.writer.close()

    def open_snapshot(self) -> sqlite3.Connection:
        """Open a connection that shows the tables as they are now."""
        snapshot = self._connect()
        snapshot.execute("BEGIN")
        snapshot.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return snapshot

    def keep_copy(self) -> sqlite3.Connection:
        """Return a copy of the committed tables; the caller closes it."""
        copy = CONNECT(":memory:")
        self.committed.backup(copy)
        return copy

    def read_all(self) -> Iterator[tuple[str, bytes]]:
        """Yield the table's name and the committed content of each row."""
        for (name,) in self.committed.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in self.committed.execute(f"SELECT * FROM {name}"):
                values = (value if isinstance(value, bytes) else str(value).encode() for value in row)
                yield name, b" ".join(values)

    def restore(self, kept: sqlite3.Connection) -> None:
        """Replace the committed tables with the copy."""
        kept.backup(self.writer)

    def _take_place(self, _: str) -> int:
        self._place += 1
        return self._place

    def _notify(self, channel: str, text: str) -> str:
        self.notices.append((channel, text))
        return ""


def _take_key(key: str | int, *_: int) -> str | int:
    """Return the key of an advisory lock: its text serves as well as a hash of it."""
    return key


def run_statement(
    database: sqlite3.Connection, statement: Translated, executions: Sequence[Sequence[Any]]
) -> list[Row]:
    """Run a statement with each of the values; return the rows of the last execution.

    Raises:
        asyncpg.PostgresError: The statement violates a constraint of the tables.
    """
    rows: list[Row] = []
    try:
        for values in iterate_values(executions):
            results: dict[str, Rows] = {}
            for step in statement.steps:
                cursor = database.execute(*expand(step.text, values, results))
                rows = cursor.fetchall()
                results[step.name] = ([column[0] for column in cursor.description or ()], rows)
    except sqlite3.IntegrityError as error:
        raise REFUSALS[str(error).partition(" constraint")[0]](str(error)) from error
    return rows
