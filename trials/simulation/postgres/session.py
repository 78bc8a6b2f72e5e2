"""A client's session with a modelled server, and what it asks for."""

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
    """Ends it after the session's statement timeout."""
    not_before_s: float = 0.0
    """When it begins, on a server that is slow."""
    is_committing: bool = False
    """Whether its effect waits for the standby alone."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    statement_s: float = inf
    """How long a statement may take."""
    idle_s: float = inf
    """How long nothing may happen in a transaction."""

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> SessionSettings:
        """Read what a client has set; 0, as PostgreSQL's own, limits nothing."""
        names = ("statement_timeout", "idle_in_transaction_session_timeout")
        return cls(*(int(settings.get(name, 0)) / 1000 or inf for name in names))


@dataclass(slots=True, eq=False)
class Session:
    pid: int
    began: int
    """Number of its server's start."""
    settings: SessionSettings
    notify: Callable[[int, str, str], None]
    lose: Callable[[Exception], None]
    """Tells its client that the server is gone, or has ended the session."""
    is_lost: bool = False
    in_transaction: bool = False
    is_failed: bool = False
    snapshot: sqlite3.Connection | None = None
    listening: set[str] = field(default_factory=set[str])
    advisory: set[object] = field(default_factory=set[object])
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What its transaction notifies once it is committed."""
    idle: asyncio.TimerHandle | None = None
