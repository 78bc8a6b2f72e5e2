"""Usage of API keys' limits, in tables that all services of the store share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.key_uses import RESERVED_MS, CallUse, take_from_bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('key ' || $1, 0))"
"""Held until the transaction ends, so that decisions about one key are serialized."""

_FIND_BUCKET = "SELECT full_at_us FROM key_calls WHERE key_id = $1"
_PUT_BUCKET = """
INSERT INTO key_calls (key_id, full_at_us) VALUES ($1, $2) ON CONFLICT (key_id) DO UPDATE SET full_at_us = $2
"""
_CLEAN_BUCKETS = "DELETE FROM key_calls WHERE full_at_us < $1"

_CLEAN_RUNS = """
DELETE FROM key_runs WHERE credential = $1
AND (expires_at <= $2 OR EXISTS (SELECT FROM runs WHERE runs.run_id = key_runs.run_id))
"""
_COUNT_RUNS = """
SELECT (SELECT count(*) FROM runs WHERE NOT is_ended AND credential = $1 AND of_tenant = $2 AND run_id <> $3)
    + (SELECT count(*) FROM key_runs WHERE credential = $1 AND run_id <> $3)
"""
_RESERVE_RUN = """
INSERT INTO key_runs (run_id, credential, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (run_id) DO UPDATE SET expires_at = $3
"""
_RELEASE_RUN = "DELETE FROM key_runs WHERE run_id = $1"

CLEAN_EVERY = 1000
"""Number of buckets used between deletions of full ones."""


class PostgresKeyUses:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._taken = 0

    async def take_calls(self, key_id: str, per_minute: int, wanted: int) -> CallUse:
        self._taken += 1
        is_cleaning = self._taken % CLEAN_EVERY == 0

        async def take(connection: Connection) -> CallUse:
            now = self._clock()
            async with connection.transaction():
                await connection.execute(_LOCK, key_id)
                full_at_us = await connection.fetchval(_FIND_BUCKET, key_id)
                use = take_from_bucket(full_at_us or 0, per_minute, wanted, now)
                await connection.execute(_PUT_BUCKET, key_id, use.full_at_us)
            if is_cleaning:
                await connection.execute(_CLEAN_BUCKETS, now * 1000)
            return use

        return await self._database.run(take)

    async def reserve_run(self, tenant: str, credential: str, run_id: str, runs_max: int) -> bool:
        async def reserve(connection: Connection) -> bool:
            now = self._clock()
            async with connection.transaction():
                await connection.execute(_LOCK, credential)
                await connection.execute(_CLEAN_RUNS, credential, now)
                if await connection.fetchval(_COUNT_RUNS, credential, tenant, run_id) >= runs_max:
                    return False
                await connection.execute(_RESERVE_RUN, run_id, credential, now + RESERVED_MS)
                return True

        return await self._database.run(reserve)

    async def release_run(self, credential: str, run_id: str) -> None:
        await self._database.run(lambda connection: connection.execute(_RELEASE_RUN, run_id))
