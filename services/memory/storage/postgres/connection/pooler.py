"""Refuses a pooler that gives each transaction another session, which breaks LISTEN and prepared statements."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import asyncpg

from services.memory.storage.postgres.connection.hosts import open_connection
from services.memory.storage.postgres.connection.session import Connection
from services.runtime.ending import CannotServe

REFUSAL = (
    "HEADRACE_DATABASE_URL leads to a pooler that keeps no sessions (PgBouncer in transaction or statement mode?): "
    "give PostgreSQL's own address, as memory pools its connections itself, or a pool in session mode with "
    "ignore_startup_parameters = statement_timeout, idle_in_transaction_session_timeout, synchronous_commit"
)

OWN_WORDS = ("startup parameter", "pooling mode")
"""Messages of poolers, but not of PostgreSQL: about settings that are not passed on, and forbidden transactions."""


async def refuse_pooler(url: str, **options: Any) -> None:
    """Raise CannotServe if `url` does not lead to dedicated sessions; `options` are asyncpg.connect's."""
    # Without named statements, which the next transaction may not find any more.
    options |= {"statement_cache_size": 0}
    with _naming_pooler():
        connection = await open_connection(url, **options)
        try:
            session = await _find_session(connection)
            if session != connection.get_server_pid():  # it is a pooler's
                await _hold_session(session, connection, url, options)
        finally:
            connection.terminate()


@contextmanager
def _naming_pooler() -> Generator[None]:
    try:
        yield
    except (asyncpg.ProtocolViolationError, asyncpg.ConnectionDoesNotExistError) as error:
        if any(words in str(error) for words in OWN_WORDS):
            raise CannotServe(f"{REFUSAL}; it says: {error}") from error
        raise


async def _hold_session(session: int, connection: Connection, url: str, options: dict[str, Any]) -> None:
    """Raise CannotServe if another client is given the session."""
    other = await open_connection(url, **options)
    try:
        async with other.transaction():
            if await _find_session(other) == session or await _find_session(connection) != session:
                raise CannotServe(REFUSAL)
    except TimeoutError as error:  # the pool has no other session
        raise CannotServe(REFUSAL) from error
    finally:
        other.terminate()


async def _find_session(connection: Connection) -> int:
    async with connection.transaction():
        return await connection.fetchval("SELECT pg_backend_pid()")
