"""Tables as numbered files, each applied once when a service starts.

Missing ones are applied in one transaction under a lock, because several services may start at the same time. Services
of the previous version continue in the meantime: none of their statements waits long for a migration that itself waits
for a table.
"""

from __future__ import annotations

import asyncio
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg
import structlog

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

LOCK = 0x6865616472616365
"""An advisory lock: "headrace" in hexadecimal."""

TIMEOUT_S = 6 * 3600.0
"""Maximum for one statement, and for waiting for another service's migration; large tables take long."""

LOCK_TIMEOUT_MS = 2000
"""How long a migration waits for a table in use, during which all other users of the table queue up."""

ATTEMPTS_MAX = 150

RETRY_DELAY_S = 2.0
"""Time for the queued statements to run."""

log = structlog.get_logger()


def list_versions() -> dict[int, str]:
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql"))
    found = {int(file.name.split("_")[0]): file.read_text() for file in files}
    return dict(sorted(found.items()))


async def migrate_tables(connection: Connection) -> bool:
    """Bring the tables to this program's version; return False if they are of a later one.

    Raises:
        LockNotAvailableError: A table was in use at each attempt.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return await _apply_missing(connection)
        except asyncpg.LockNotAvailableError:
            if attempt == ATTEMPTS_MAX:
                raise
            log.warning("migration waits: a table is in use", attempt=attempt)
            await asyncio.sleep(RETRY_DELAY_S)
    raise AssertionError("each attempt returns or raises")


async def _apply_missing(connection: Connection) -> bool:
    known = list_versions()
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=TIMEOUT_S)
        await connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        await connection.execute("CREATE TABLE IF NOT EXISTS headrace_version (version bigint NOT NULL)")
        applied = await connection.fetchval("SELECT coalesce(max(version), 0) FROM headrace_version")
        for version, statements in known.items():
            if version > applied:
                await connection.execute(statements, timeout=TIMEOUT_S)
                await connection.execute("INSERT INTO headrace_version VALUES ($1)", version)
                log.info("database migrated", version=version)
    return applied <= max(known)
