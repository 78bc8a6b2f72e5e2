"""One connection to the database, and which of its servers it leads to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = Any
"""A `Session` as asyncpg's pool lends it, which has no types of its own."""


class Session(asyncpg.Connection):
    """A connection that knows which server it is to."""

    server: datetime | None = None
    """When it has started. Another one may lack what this one shows and has not acknowledged: nothing that was read of
    the one holds for the other."""


def get_server(connection: Connection) -> datetime | None:
    """Return the server of a connection; None when it was lost meanwhile, and taken back by the pool."""
    return getattr(connection, "server", None)


async def read_start_time(connection: Connection) -> datetime:
    """When the server behind a connection has started, by which one is told from another."""
    return await connection.fetchval("SELECT pg_postmaster_start_time()")
