from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.log.blobs import Blob, is_blob_id
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection

_PUT = """
INSERT INTO blobs VALUES ($1, $2, $3, $4, $5) ON CONFLICT (chat_id, blob_id) DO UPDATE SET wanted_at = $5
"""

_FIND = "SELECT mime_type, data FROM blobs WHERE chat_id = $1 AND blob_id = $2"
_LIST = "SELECT mime_type, data FROM blobs WHERE chat_id = $1 ORDER BY blob_id"

_COPY = """
INSERT INTO blobs SELECT $2, blob_id, mime_type, data, wanted_at FROM blobs WHERE chat_id = $1 ON CONFLICT DO NOTHING
"""

_ORPHANS = """
DELETE FROM blobs AS blob WHERE NOT EXISTS (SELECT FROM chats WHERE chats.chat_id = blob.chat_id)
AND NOT EXISTS (SELECT FROM blobs AS young WHERE young.chat_id = blob.chat_id AND young.wanted_at >= $1)
RETURNING chat_id
"""


class PostgresBlobs:
    """The blobs of all chats. The event loop's thread must not call `find`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()

    async def put_all(self, chat_id: str, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            row = (chat_id, blob.id, blob.mime_type, blob.data, now_ms())
            await self._database.run(lambda connection, row=row: connection.execute(_PUT, *row))

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        if not is_blob_id(blob_id):
            return None
        finding = self._database.run(lambda connection: connection.fetchrow(_FIND, chat_id, blob_id))
        row = asyncio.run_coroutine_threadsafe(finding, self._loop).result()
        return Blob(*row).check_id(chat_id, blob_id) if row else None

    async def list_all(self, chat_id: str) -> list[Blob]:
        return [Blob(*row) for row in await self._database.run(lambda connection: connection.fetch(_LIST, chat_id))]

    async def delete_orphans(self, age_s: float) -> list[str]:
        before = now_ms() - round(age_s * 1000)
        rows = await self._database.run(lambda connection: connection.fetch(_ORPHANS, before))
        return sorted({row[0] for row in rows})


async def copy_blobs(source: str, target: str, connection: Connection) -> None:
    await connection.execute(_COPY, source, target)


async def delete_blobs(chat_id: str, connection: Connection) -> None:
    await connection.execute("DELETE FROM blobs WHERE chat_id = $1", chat_id)
