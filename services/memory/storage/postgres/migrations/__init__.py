"""Tables as numbered files, each applied once when a service starts.

Missing ones are applied in one transaction under a lock, as several services may start at once.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

LOCK = 0x6865616472616365
"""An advisory lock: "headrace" in hexadecimal."""

log = structlog.get_logger()


def list_versions() -> dict[int, str]:
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql"))
    found = {int(file.name.split("_")[0]): file.read_text() for file in files}
    return dict(sorted(found.items()))


async def migrate_tables(connection: Connection) -> bool:
    """Bring the tables to this program's version; False if they are of a later one."""
    known = list_versions()
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # a large table takes what it takes
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await connection.execute("CREATE TABLE IF NOT EXISTS headrace_version (version bigint NOT NULL)")
        applied = await connection.fetchval("SELECT coalesce(max(version), 0) FROM headrace_version")
        for version, statements in known.items():
            if version > applied:
                await connection.execute(statements)
                await connection.execute("INSERT INTO headrace_version VALUES ($1)", version)
                log.info("database migrated", version=version)
    return applied <= max(known)
