"""Replaces the system calls that services make directly with calls of a simulated disk."""

import os
import sqlite3
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

SYNC: ContextVar[Callable[[int], None]] = ContextVar("SYNC", default=os.fsync)
CONNECT: Any = sqlite3.connect

COMMITTED: ContextVar[Callable[[Path], None]] = ContextVar("COMMITTED")
"""Receives SQLite's log after each synced commit."""


class WatchedConnection(sqlite3.Connection):
    def __init__(self, database: Any, **options: Any) -> None:
        super().__init__(database, **options)
        self._log = Path(f"{database}-wal")
        self._is_safe = False

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        answer = super().execute(sql, *given)
        if sql.startswith("PRAGMA synchronous="):
            self._is_safe = sql.endswith("FULL")
        elif sql == "COMMIT" and self._is_safe:
            COMMITTED.get(_ignore)(self._log)
        return answer


def install() -> None:
    """Replace the real calls with the simulated ones, in this process."""
    os.fsync = os.fdatasync = _sync
    sqlite3.connect = _connect


def _sync(fd: Any) -> None:
    SYNC.get()(fd)


def _connect(database: Any, **options: Any) -> Any:
    return CONNECT(database, factory=WatchedConnection, **options)


def _ignore(_: Path) -> None:
    pass
