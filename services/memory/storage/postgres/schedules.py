"""Schedules in a table, each a row that changes if it is as its writer read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.records import encrypt_record, read_record
from services.memory.storage.records.schedules import SCHEDULE, Schedule, decode_schedule, encode_schedule

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.connection.pool import Database
    from services.runtime.auth.identity import Identity

_OWN = """
SELECT schedule_id, data FROM schedules WHERE tenant = $1 AND user_name = $2 AND (created_at, schedule_id) > ($3, $4)
ORDER BY created_at, schedule_id LIMIT $5
"""
_OWN_IDS = "SELECT schedule_id FROM schedules WHERE tenant = $1 AND user_name = $2 ORDER BY created_at, schedule_id"
_ALL = "SELECT schedule_id, data FROM schedules ORDER BY created_at, schedule_id"
_FIND = "SELECT schedule_id, data FROM schedules WHERE schedule_id = $1"
_COUNT = "SELECT count(*) FROM schedules WHERE tenant = $1 AND user_name = $2"
_NEXT = "SELECT coalesce(min(starts_at), 0) FROM schedules WHERE starts_at > $1 AND starts_at > 0"

_DUE = """
SELECT schedule_id, data FROM (
    SELECT data, starts_at, schedule_id,
        row_number() OVER (PARTITION BY tenant, user_name ORDER BY starts_at, schedule_id) AS place
    FROM schedules WHERE starts_at > 0 AND starts_at <= $1) AS ranked
ORDER BY place, starts_at, schedule_id LIMIT $2
"""

_INSERT = """
INSERT INTO schedules (schedule_id, tenant, user_name, created_at, starts_at, version, data)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING version
"""

_UPDATE = """
UPDATE schedules SET starts_at = $3, version = $2, data = $4
WHERE schedule_id = $1 AND version = $5 RETURNING version
"""

_DELETE = "DELETE FROM schedules WHERE schedule_id = $1"


class PostgresSchedules:
    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys

    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        return await self._fetch(_OWN, owner.tenant, owner.user, *after, count)

    async def list_own_ids(self, owner: Identity) -> list[str]:
        values = owner.tenant, owner.user
        return [row[0] for row in await self._database.run(lambda connection: connection.fetch(_OWN_IDS, *values))]

    async def list_all(self) -> list[Schedule]:
        return await self._fetch_readable(_ALL)

    async def find(self, schedule_id: str) -> Schedule | None:
        return next(iter(await self._fetch(_FIND, schedule_id)), None)

    async def count_own(self, owner: Identity) -> int:
        return await self._database.run(lambda connection: connection.fetchval(_COUNT, owner.tenant, owner.user))

    async def list_due(self, now: int, count: int) -> list[Schedule]:
        return await self._fetch_readable(_DUE, now, count)

    async def find_next_start(self, now: int) -> int:
        return await self._database.run(lambda connection: connection.fetchval(_NEXT, now))

    async def put(self, schedule: Schedule, before: int = 0) -> bool:
        await self._keys.prepare(schedule.owner.tenant)
        statement, values = _make_change(schedule, before, encode_row(schedule, self._keys))
        # An answer that is lost is repeated, and then finds its own change: who asks reads it again.
        return await self._database.run(lambda connection: connection.fetchval(statement, *values)) is not None

    async def delete(self, schedule_id: str) -> None:
        await self._database.run(lambda connection: connection.execute(_DELETE, schedule_id))

    async def _fetch(self, statement: str, *values: Any) -> list[Schedule]:
        rows = await self._database.run(lambda connection: connection.fetch(statement, *values))
        await self._keys.open_for(row[1] for row in rows)
        return [_decode_row(self._keys, *row) for row in rows]

    async def _fetch_readable(self, statement: str, *values: Any) -> list[Schedule]:
        """Fetch schedules of several tenants, without those whose keys cannot be had."""
        rows = await self._database.run(lambda connection: connection.fetch(statement, *values))
        readable = await self._keys.select_readable(rows, lambda row: row[1])
        return [_decode_row(self._keys, *row) for row in readable]


def encode_row(schedule: Schedule, keys: Keyring) -> bytes:
    return encrypt_record(SCHEDULE, schedule.schedule_id, encode_schedule(schedule), keys, schedule.owner.tenant)


def _decode_row(keys: Keyring, schedule_id: str, data: bytes) -> Schedule:
    return decode_schedule(read_record(SCHEDULE, schedule_id, data, keys))


def _make_change(schedule: Schedule, before: int, data: bytes) -> tuple[str, tuple[Any, ...]]:
    if before:
        return _UPDATE, (schedule.schedule_id, schedule.version, schedule.starts_at, data, before)
    owner, starts_at = schedule.owner, schedule.starts_at
    key = (schedule.schedule_id, owner.tenant, owner.user, schedule.created_at)
    return _INSERT, (*key, starts_at, schedule.version, data)
