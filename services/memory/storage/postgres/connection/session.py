"""One connection to the database, and the server it leads to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = Any
"""A `Session` as returned by asyncpg's pool, without types."""


class Session(asyncpg.Connection):
    server: datetime | None = None
    """The server's start time. Another server may lack unacknowledged data, so data read from one is not valid for the
    other."""

    def get_reset_query(self) -> str:
        """Return the query the pool sends when a connection is returned: none, because the store leaves nothing in a
        session.

        Locks and settings are per transaction, and LISTEN has its own connection. This saves each call a round trip; an
        open transaction is rolled back all the same.
        """
        return ""


def strip_nul(value: Any) -> Any:
    """Remove NUL from a text, because the types text and jsonb cannot hold it; other values are unchanged."""
    return value.replace("\0", "") if isinstance(value, str) else value


def get_server(connection: Connection) -> datetime | None:
    return getattr(connection, "server", None)


async def read_start_time(connection: Connection) -> datetime:
    return await connection.fetchval("SELECT pg_postmaster_start_time()")
