"""Erasures and holds in a table, each a row that changes if it is as its writer read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import msgspec

from services.memory.storage.people.records import Record

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database

_ALL = "SELECT data FROM data_records WHERE kind = $1"
_FIND = "SELECT data FROM data_records WHERE kind = $1 AND record_id = $2"

_INSERT = """
INSERT INTO data_records (record_id, kind, version, data) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING version
"""

_UPDATE = """
UPDATE data_records SET version = $3, data = $4
WHERE record_id = $1 AND kind = $2 AND version = $5 RETURNING version
"""


class PostgresDataRecords(Generic[Record]):
    def __init__(self, database: Database, kind: str, struct: type[Record]) -> None:
        self._database = database
        self._kind = kind
        self._decoder = msgspec.json.Decoder(struct)

    async def list_all(self) -> list[Record]:
        return await self._fetch(_ALL)

    async def find(self, record_id: str) -> Record | None:
        return next(iter(await self._fetch(_FIND, record_id)), None)

    async def put(self, record: Record, before: int = 0) -> bool:
        values: tuple[Any, ...] = (record.record_id, self._kind, record.version, msgspec.json.encode(record))
        statement, values = (_UPDATE, (*values, before)) if before else (_INSERT, values)
        # An answer that is lost is repeated, and then finds its own change: who asks reads it again.
        return await self._database.run(lambda connection: connection.fetchval(statement, *values)) is not None

    async def _fetch(self, statement: str, *values: Any) -> list[Record]:
        rows = await self._database.run(lambda connection: connection.fetch(statement, self._kind, *values))
        return [self._decoder.decode(row[0]) for row in rows]
