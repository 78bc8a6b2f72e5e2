"""One connection to the database, and which of its servers it leads to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = Any
"""A `Session` as asyncpg's pool lends it, which has no types of its own."""


class Session(asyncpg.Connection):
    server: datetime | None = None
    """When it has started. Another one may lack what this one shows and has not acknowledged: nothing that was read of
    the one holds for the other."""


def get_server(connection: Connection) -> datetime | None:
    """Return the server of a connection; None if it was lost meanwhile."""
    return getattr(connection, "server", None)


async def read_start_time(connection: Connection) -> datetime:
    """Return when the server has started, which tells one server from another."""
    return await connection.fetchval("SELECT pg_postmaster_start_time()")
