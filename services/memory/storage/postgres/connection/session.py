"""One connection to the database, and the server it leads to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = Any
"""A `Session` as asyncpg's pool lends it, without types."""


class Session(asyncpg.Connection):
    server: datetime | None = None
    """The server's start time. Another server may lack unacknowledged data, so nothing read from one holds for the
    other."""

    def get_reset_query(self) -> str:
        """Return what the pool sends when a connection is given back: nothing, as the store keeps nothing in a session
        (locks and settings are of transactions, and who listens has a connection of its own). A round trip less for
        each call; an open transaction is rolled back all the same."""
        return ""


def strip_nul(value: Any) -> Any:
    """Remove NUL from a text, as the types text and jsonb cannot hold it; other values stay as they are."""
    return value.replace("\0", "") if isinstance(value, str) else value


def get_server(connection: Connection) -> datetime | None:
    return getattr(connection, "server", None)


async def read_start_time(connection: Connection) -> datetime:
    return await connection.fetchval("SELECT pg_postmaster_start_time()")
