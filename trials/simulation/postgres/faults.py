"""Applies the faults of a world's PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import asyncpg

from trials.simulation.plan import POSTGRES
from trials.simulation.postgres.database import MESSAGES_MAX, STALLS_S
from trials.simulation.postgres.driver import GONE

if TYPE_CHECKING:
    from trials.simulation.plan import Fault
    from trials.simulation.postgres.database import Database

KINDS = ("kill", "stop", "failover", "stall", "ENOSPC")
"""Faults of the server itself; the world applies those of its network."""

SEEN_AND_GONE = "database seen and gone"
"""Count of fail-overs to a standby that lacked rows that clients had read."""

STRIKES_S = 3.0
"""Longest time that a fault waits for its message before it strikes."""


async def strike_database(database: Database, fault: Fault) -> None:
    """Apply a fault of KINDS; return when it is over."""
    server = database.server
    # One fail-over at a time: there is one standby.
    if not server.is_up or (fault.kind == "failover" and not server.has_standby):
        return
    match fault.kind:
        case "kill":
            await _end_server(database, fault, asyncpg.ConnectionDoesNotExistError(GONE))
        case "stop":
            await _end_server(database, fault, asyncpg.AdminShutdownError("terminating connection"))
        case "failover":
            await _fail_over(database, fault)
        case "stall":
            server.choose_stall_s = lambda: database.random.choice(STALLS_S)
            server.on_stall = lambda: database.story.bite(fault.kind, POSTGRES)
            await asyncio.sleep(fault.lasts_s)
            server.choose_stall_s = lambda: 0.0
        case _:
            server.is_full, server.on_full = True, lambda: database.story.bite(fault.kind, POSTGRES)
            await asyncio.sleep(fault.lasts_s)
            server.is_full = False


async def _end_server(database: Database, fault: Fault, error: Exception) -> None:
    await _strike(database, fault, lambda: _crash(database, fault, error))
    await asyncio.sleep(fault.lasts_s)
    _start(database)


async def _fail_over(database: Database, fault: Fault) -> None:
    """Lose the standby, so that no commit is acknowledged, and then the server: the standby replaces it.

    The commit that waits for the standby survives or not. In one of three fail-overs, clients see it before it is lost:
    the server comes back once more, and clients read rows there that the standby never had.
    """
    server, tables, random = database.server, database.tables, database.random
    server.has_standby = False
    with closing(tables.keep_copy()) as standby:
        await asyncio.sleep(fault.lasts_s)
        comes_back = random.random() < 1 / 3
        keeps_last = comes_back or random.random() < 0.5
        if not server.is_up:  # another fault was faster
            server.find_standby()
            return
        _crash(database, fault, asyncpg.ConnectionDoesNotExistError(GONE), keeps_last=keeps_last)
        await asyncio.sleep(random.uniform(0.1, 2.0))
        if comes_back:
            _start(database)
            await asyncio.sleep(random.uniform(0.5, 5.0))
            if server.is_up:
                _crash(database, fault, asyncpg.ConnectionDoesNotExistError(GONE), keeps_last=False)
            ended = database.list_ended()
            tables.restore(standby)
            database.ends_taken_back |= ended - database.list_ended()
            database.story.tell(
                "database the standby takes over without what was not acknowledged", count=SEEN_AND_GONE
            )
    server.has_standby = True
    _start(database)


async def _strike(database: Database, fault: Fault, action: Callable[[], None]) -> None:
    database.strike_at(1 + fault.turns % MESSAGES_MAX, action)
    await asyncio.sleep(STRIKES_S)
    database.strike_now(action)


def _crash(database: Database, fault: Fault, error: Exception, *, keeps_last: bool = True) -> None:
    database.story.tell(f"database ends by a {fault.kind}", count=f"database {fault.kind}")
    database.story.bite(fault.kind, POSTGRES)
    database.server.crash(error, keeps_last=keeps_last)


def _start(database: Database) -> None:
    database.story.tell("database starts")
    database.server.start()
