"""A client's session with a modelled server, and its calls."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trials.simulation.postgres.tables import Row


@dataclass(slots=True, eq=False)
class Call:
    """A statement, with the values of each of its executions."""

    text: str
    executions: Sequence[Sequence[Any]]
    answer: Callable[[list[Row] | Exception], None]
    timer: asyncio.TimerHandle | None = None
    """Ends the call after the session's statement timeout."""
    not_before_s: float = 0.0
    """Earliest start of the call, on a slow server."""
    is_committing: bool = False
    """Whether only the standby's confirmation is missing."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    statement_s: float = inf
    """Longest time of one statement."""
    idle_s: float = inf
    """Longest time that a transaction may be idle."""

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> SessionSettings:
        """Read a client's settings; 0 sets no limit, as in PostgreSQL."""
        names = ("statement_timeout", "idle_in_transaction_session_timeout")
        return cls(*(int(settings.get(name, 0)) / 1000 or inf for name in names))


@dataclass(slots=True, eq=False)
class Session:
    pid: int
    began: int
    """Number of the server start in which the session began."""
    settings: SessionSettings
    notify: Callable[[int, str, str], None]
    lose: Callable[[Exception], None]
    """Notifies the client that the server has stopped or has ended the session."""
    is_lost: bool = False
    in_transaction: bool = False
    is_failed: bool = False
    snapshot: sqlite3.Connection | None = None
    listening: set[str] = field(default_factory=set[str])
    advisory: set[object] = field(default_factory=set[object])
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Notifications that the transaction sends once it is committed."""
    idle: asyncio.TimerHandle | None = None
