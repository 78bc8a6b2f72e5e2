"""Blobs in the database: kept before any line that refers to them, gone with their chat in the same transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from services.memory.log.blobs import Blob

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

_PUT = """
INSERT INTO blobs VALUES ($1, $2, $3, $4, $5) ON CONFLICT (chat_id, blob_id) DO UPDATE SET wanted_at = $5
"""

_COPY = """
INSERT INTO blobs SELECT $2, blob_id, mime_type, data, wanted_at FROM blobs WHERE chat_id = $1 ON CONFLICT DO NOTHING
"""

_ORPHANS = """
DELETE FROM blobs AS blob WHERE NOT EXISTS (SELECT FROM chats WHERE chats.chat_id = blob.chat_id)
AND NOT EXISTS (SELECT FROM blobs AS young WHERE young.chat_id = blob.chat_id AND young.wanted_at >= $1)
RETURNING chat_id
"""


async def put(chat_id: str, blob: Blob, connection: Connection) -> None:
    """Keep a blob; on disk when this returns. One that is there already stays as it is."""
    await connection.execute(_PUT, chat_id, blob.id, blob.mime_type, blob.data, _now_ms())


async def find(chat_id: str, blob_id: str, connection: Connection) -> Blob | None:
    query = "SELECT mime_type, data FROM blobs WHERE chat_id = $1 AND blob_id = $2"
    row = await connection.fetchrow(query, chat_id, blob_id)
    return Blob(*row) if row else None


async def every(chat_id: str, connection: Connection) -> list[Blob]:
    query = "SELECT mime_type, data FROM blobs WHERE chat_id = $1 ORDER BY blob_id"
    return [Blob(*row) for row in await connection.fetch(query, chat_id)]


async def copy(source: str, target: str, connection: Connection) -> None:
    """Give the chat `target` all blobs of `source`."""
    await connection.execute(_COPY, source, target)


async def delete(chat_id: str, connection: Connection) -> None:
    await connection.execute("DELETE FROM blobs WHERE chat_id = $1", chat_id)


async def delete_orphans(age_s: float, connection: Connection) -> list[str]:
    """Delete the blobs of chats that are not there, when nobody has wanted any of them for so long; those chats."""
    rows = await connection.fetch(_ORPHANS, _now_ms() - round(age_s * 1000))
    return sorted({row[0] for row in rows})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
