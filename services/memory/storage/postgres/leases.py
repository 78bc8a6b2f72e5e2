"""Ownership of runs, in columns that change only while the chat is locked.

Leases expire by the clock of the service asked, in Unix milliseconds; generations fence former owners, independent of
clocks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.leases import Lease, check_can_own
from services.memory.storage.postgres.connection.session import strip_nul

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.cached_chat import CachedChat, ChatCache
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection

_LEASE = "SELECT owner, lease_generation, expires_at FROM runs WHERE run_id = $1"

_ACQUIRE = """
WITH chat AS (UPDATE chats SET version = version + 1 WHERE id = $1)
UPDATE runs SET owner = $3, lease_generation = $4, expires_at = $5 WHERE run_id = $2
"""

_RENEW = """
UPDATE runs SET expires_at = $3
WHERE run_id = $1 AND lease_generation = $2 AND owner <> '' AND expires_at > 0 AND NOT is_ended
RETURNING owner
"""

_RENEW_ALL = """
WITH free AS (
    SELECT run_id FROM runs JOIN unnest($1::text[], $2::bigint[]) AS held(id, fence) ON run_id = id
    WHERE lease_generation = fence AND owner <> '' AND expires_at > 0 AND NOT is_ended
    FOR NO KEY UPDATE OF runs SKIP LOCKED
)
UPDATE runs SET expires_at = $3 FROM free WHERE runs.run_id = free.run_id RETURNING runs.run_id
"""
"""Skips runs that are being written, because rows locked in different orders could deadlock."""

_RELEASE = """
UPDATE runs SET expires_at = $3::bigint, owner = CASE WHEN $3::bigint > 0 THEN '' ELSE owner END
WHERE run_id = $1 AND lease_generation = $2 AND owner <> '' AND expires_at > 0 AND NOT is_ended
"""


class PostgresLeases:
    def __init__(self, database: Database, cache: ChatCache, clock: Callable[[], int], keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys
        self._cache = cache
        self._clock = clock

    def create_first(self, owner: str, ttl_ms: int) -> Lease:
        return Lease.start_at(owner, 0, self._clock(), ttl_ms)

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        cached = self._cache.use_chat(chat_id)
        async with cached.lock:
            lease = await self._database.run(partial(self._acquire, cached, run_id, strip_nul(owner), ttl_ms))
        self._cache.keep_chat(cached)
        return lease

    async def _acquire(self, cached: CachedChat, run_id: str, owner: str, ttl_ms: int, connection: Connection) -> Lease:
        async with connection.transaction():
            await cached.lock_row(connection, self._keys)
            run = check_can_own(cached.chat.info.runs.get(run_id), cached.chat.chat_id, run_id)
            before = Lease(*await connection.fetchrow(_LEASE, run_id))
            before.check_free(run_id, owner, self._clock())
            lease = Lease.start_at(owner, max(before.generation, run.generation) + 1, self._clock(), ttl_ms)
            await connection.execute(_ACQUIRE, cached.row, run_id, lease.owner, lease.generation, lease.expires_at)
        cached.version += 1
        return lease

    async def renew(self, held: Mapping[str, int], ttl_ms: int) -> tuple[int, list[str]]:
        async def renew(connection: Connection) -> tuple[int, list[str]]:
            expires_at = Lease.start_at("", 0, self._clock(), ttl_ms).expires_at
            rows = await connection.fetch(_RENEW_ALL, [*held], [*held.values()], expires_at)
            lost: list[str] = []
            for run_id in held.keys() - {row[0] for row in rows}:
                if await connection.fetchval(_RENEW, run_id, held[run_id], expires_at) is None:
                    lost.append(run_id)
            return expires_at, lost

        return await self._database.run(renew)

    async def release(self, run_id: str, generation: int, due_at: int = 0) -> None:
        await self._database.run(lambda connection: connection.execute(_RELEASE, run_id, generation, due_at))
