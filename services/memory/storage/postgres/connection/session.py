"""One connection to the database, and the server it leads to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

from services.runtime.ending import CannotServe

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


BEGIN = "SELECT pg_postmaster_start_time(), set_config('default_transaction_isolation', 'read committed', false)"


async def begin_session(connection: Connection) -> datetime:
    """Return the server's start time, and let transactions see what others have committed before each statement.

    The role or the database may have another default, with which a transaction would see the data as of before it had
    waited for a lock.
    """
    return await connection.fetchval(BEGIN)


def check_encoding(connection: Connection) -> None:
    """Raise CannotServe if the database cannot store every character."""
    encoding = connection.get_settings().server_encoding
    if encoding != "UTF8":
        raise CannotServe(f"the database has the encoding {encoding}: create one with ENCODING 'UTF8'")
