"""SQLite files that are durable after each commit, and the SQL of records in one."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import Overloaded
from services.runtime.files.disk import make_full_error

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.sql import Decision, Row, Statement

T = TypeVar("T")

_MARK = re.compile(r"\$(\d+)")


class SqliteSql:
    """A file, used in any thread by one transaction at a time."""

    state = None

    def __init__(self, path: Path, room: DiskRoom, tables: Iterable[str], older: Path) -> None:
        """Open `path` and create missing `tables`; blocks. Imported files are in the folder `older`.

        Raises:
            OSError: The file cannot be read or written.
        """
        self._room, self._older, self._lock = room, older, Lock()
        try:
            self._database = open_file(path)
            self._database.execute("PRAGMA secure_delete=ON")  # or deleted texts would stay in free pages
            for statement in tables:
                self._database.execute(statement)
        except sqlite3.Error as error:
            raise OSError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file after the transaction that a thread may still be in: SQLite crashes if it goes meanwhile."""
        with self._lock:
            self._database.close()

    async def run(self, *statements: Statement) -> list[list[Row]]:
        return await asyncio.to_thread(self.run_now, *statements)

    def run_now(self, *statements: Statement) -> list[list[Row]]:
        """Like `run`, but blocks."""
        with self._transaction() as database:
            return [execute(database, *statement) for statement in statements]

    async def decide(self, lock: str, read: Statement, decide: Callable[[list[Row]], Decision[T]]) -> T:
        def run() -> T:
            with self._transaction() as database:
                statements, result = decide(execute(database, *read))
                for statement in statements:
                    execute(database, *statement)
                return result

        return await asyncio.to_thread(run)

    async def scrub(self, imported: str = "") -> None:
        def scrub() -> None:
            with self._room.noting(), self._lock, database_errors("the records of the store"):
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.rmtree(self._older / imported, ignore_errors=True)

        await asyncio.to_thread(scrub)

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._room.noting(), self._lock, database_errors("the records of the store"), transaction(self._database):
            yield self._database


def open_file(path: Path) -> sqlite3.Connection:
    """Open a SQLite file that is durable after each commit."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # SQLite itself ends it on a full disk
            database.execute("ROLLBACK")
        raise


def execute(database: sqlite3.Connection, text: str, values: Sequence[Any]) -> list[Row]:
    return database.execute(number_marks(text), tuple(values)).fetchall()


@lru_cache(1024)
def number_marks(text: str) -> str:
    """Return a statement with SQLite's marks."""
    return _MARK.sub(r"?\1", text)


@contextmanager
def database_errors(what: str) -> Generator[None]:
    """Raise Overloaded, or DiskFull, if the file of `what` cannot be used. Nothing is lost, and a retry may succeed."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
            raise make_full_error(what) from error
        raise Overloaded(f"{what} cannot be used: {error}; try again later") from error
