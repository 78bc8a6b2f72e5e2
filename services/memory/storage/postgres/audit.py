"""The audit logs of all tenants in a table; a writer locks the head of its tenant's log and appends after it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.hash_chain import FIRST
from services.memory.storage.audit import NO_HEAD, Head, chain_records, make_forgotten
from services.memory.storage.postgres.connection.session import strip_nul

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection


PORTION_LINES = 1_000

_MAKE_HEAD = "INSERT INTO audit_heads VALUES ($1, 0, $2) ON CONFLICT DO NOTHING"
_LOCK_HEAD = "SELECT seq, hash FROM audit_heads WHERE tenant = $1 FOR UPDATE"
_HEAD = "SELECT seq, hash FROM audit_heads WHERE tenant = $1"
_PUT_HEAD = "UPDATE audit_heads SET seq = $2, hash = $3 WHERE tenant = $1"
_INSERT = "INSERT INTO audit VALUES ($1, $2, $3, $4)"
_BEHIND = "SELECT seq, line FROM audit WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3"
_NEWEST = "SELECT line FROM audit WHERE tenant = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3"

_OLD = """
WITH kept AS (SELECT tenant, min(seq) AS first FROM audit WHERE at >= $1 GROUP BY tenant)
SELECT tenant, max(seq) FROM audit JOIN kept USING (tenant) WHERE seq < first GROUP BY tenant
"""
"""The lines before the first one that is not older; a later old line may come from a service with a wrong clock."""

_FORGET = "DELETE FROM audit WHERE tenant = $1 AND seq <= $2"


class AuditTable:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        async def store(connection: Connection) -> None:
            async with connection.transaction():
                await _append_lines(connection, tenant, records)

        await self._database.run(store)

    async def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        seq = -1
        while rows := await self._read_rows(tenant, seq, PORTION_LINES):
            seq = rows[-1][0]
            yield [line for _, line in rows]

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        return [line for _, line in await self._read_rows(tenant, seq, count)]

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        rows = await self._database.run(lambda connection: connection.fetch(_NEWEST, tenant, before_seq, count))
        return [row[0] for row in rows]

    async def read_head(self, tenant: str) -> Head:
        row = await self._database.run(lambda connection: connection.fetchrow(_HEAD, tenant))
        return (row[0], row[1]) if row else NO_HEAD

    async def forget(self, before_at: int) -> None:
        """Delete a tenant's older lines; if all are older, they stay, because the chain needs one."""
        for tenant, seq in await self._database.run(lambda connection: connection.fetch(_OLD, before_at)):
            await self._forget_lines(tenant, seq)

    async def _forget_lines(self, tenant: str, seq: int) -> None:
        async def forget(connection: Connection) -> None:
            async with connection.transaction():
                await _append_lines(connection, tenant, [make_forgotten(self._clock(), seq + 1)])
                await connection.execute(_FORGET, tenant, seq)

        await self._database.run(forget)

    async def _read_rows(self, tenant: str, seq: int, count: int) -> Sequence[tuple[int, str]]:
        return await self._database.run(lambda connection: connection.fetch(_BEHIND, tenant, seq, count))


async def _append_lines(connection: Connection, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
    await connection.execute(_MAKE_HEAD, tenant, FIRST)
    head = await connection.fetchrow(_LOCK_HEAD, tenant)
    # The type text cannot hold NUL, and a hash covers the stored text.
    stripped = [{name: strip_nul(value) for name, value in record.items()} for record in records]
    lines, (seq, own) = chain_records((head[0], head[1]), stripped)
    first = seq - len(lines) + 1
    rows = [
        (tenant, number, record["at"], line)
        for number, (line, record) in enumerate(zip(lines, stripped, strict=True), first)
    ]
    await connection.executemany(_INSERT, rows)
    await connection.execute(_PUT_HEAD, tenant, seq, own)
