from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.media import Blob, is_blob_id
from services.memory.storage.encrypted.records import decrypt_blob, encrypt_blob
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection

_PUT = """
INSERT INTO blobs VALUES ($1, $2, $3, $4, $5) ON CONFLICT (chat_id, blob_id) DO UPDATE SET wanted_at = $5
"""

_FIND = "SELECT mime_type, data FROM blobs WHERE chat_id = $1 AND blob_id = $2"
_LIST = "SELECT blob_id, mime_type, data FROM blobs WHERE chat_id = $1 ORDER BY blob_id"

_LIST_IDS = "SELECT blob_id FROM blobs WHERE chat_id = $1 ORDER BY blob_id"
_DELETE = "DELETE FROM blobs WHERE chat_id = $1 AND blob_id = ANY($2)"

_COPY = "INSERT INTO blobs VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"

_COPIED = "SELECT blob_id, mime_type, data, wanted_at FROM blobs WHERE chat_id = $1"

ENCRYPTED = ""
"""In place of a MIME type: an encrypted blob contains its own. No blob's type is empty."""

_ORPHANS = """
DELETE FROM blobs AS blob WHERE NOT EXISTS (SELECT FROM chats WHERE chats.chat_id = blob.chat_id)
AND NOT EXISTS (SELECT FROM blobs AS young WHERE young.chat_id = blob.chat_id AND young.wanted_at >= $1)
RETURNING chat_id
"""


class PostgresBlobs:
    """The blobs of all chats. The event loop's thread must not call `find`."""

    def __init__(self, database: Database, keys: Keyring = NO_KEYS) -> None:
        self._database = database
        self._keys = keys
        self._loop = asyncio.get_running_loop()

    async def put_all(self, chat_id: str, tenant: str, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            await self._keys.prepare(tenant)
            row = (chat_id, blob.id, *encode_blob(chat_id, blob, self._keys, tenant), now_ms())
            await self._database.run(lambda connection, row=row: connection.execute(_PUT, *row))

    async def load(self, chat_id: str, blob_id: str) -> Blob | None:
        row = await self._read_row(chat_id, blob_id)
        if row is None:
            return None
        await self._keys.open_for([row[1]])
        return await asyncio.to_thread(_check_blob, self._keys, chat_id, blob_id, row)

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        row = asyncio.run_coroutine_threadsafe(self._read_row(chat_id, blob_id), self._loop).result()
        return None if row is None else _check_blob(self._keys, chat_id, blob_id, row)

    async def list_all(self, chat_id: str) -> list[Blob]:
        rows = await self._database.run(lambda connection: connection.fetch(_LIST, chat_id))
        await self._keys.open_for(row[2] for row in rows)
        return [decode_blob(self._keys, chat_id, *row) for row in rows]

    async def list_ids(self, chat_id: str) -> list[str]:
        return [row[0] for row in await self._database.run(lambda connection: connection.fetch(_LIST_IDS, chat_id))]

    async def delete_each(self, chat_id: str, blob_ids: Collection[str]) -> None:
        await self._database.run(lambda connection: connection.execute(_DELETE, chat_id, [*blob_ids]))

    async def _read_row(self, chat_id: str, blob_id: str) -> tuple[str, bytes] | None:
        if not is_blob_id(blob_id):
            return None
        return await self._database.run(lambda connection: connection.fetchrow(_FIND, chat_id, blob_id))

    async def finish_deletions(self) -> None:
        """Do nothing: a chat's blobs are deleted in its own transaction."""

    async def delete_orphans(self, age_s: float) -> list[str]:
        before = now_ms() - round(age_s * 1000)
        rows = await self._database.run(lambda connection: connection.fetch(_ORPHANS, before))
        return sorted({row[0] for row in rows})


def encode_blob(chat_id: str, blob: Blob, keys: Keyring, tenant: str) -> tuple[str, bytes]:
    """Return a row's MIME type and data."""
    if not keys.encrypts:
        return blob.mime_type, blob.data
    return ENCRYPTED, encrypt_blob(chat_id, blob.id, blob.encode(), keys, tenant)


def _check_blob(keys: Keyring, chat_id: str, blob_id: str, row: tuple[str, bytes]) -> Blob | None:
    return decode_blob(keys, chat_id, blob_id, *row).check_id(chat_id, blob_id)


def decode_blob(keys: Keyring, chat_id: str, blob_id: str, mime_type: str, data: bytes) -> Blob:
    """Return the blob in a row; its id shows whether it has changed since it was written. Raises KeyUnavailable,
    Overloaded."""
    if mime_type != ENCRYPTED:
        return Blob(mime_type, data)
    return Blob.decode(decrypt_blob(chat_id, blob_id, data, keys))


async def copy_blobs(source: str, target: str, tenant: str, keys: Keyring, connection: Connection) -> None:
    """Copy the blobs of a tenant's chat; the tenant's key must be loaded."""
    rows = await connection.fetch(_COPIED, source)
    await keys.open_for(row[2] for row in rows)
    for blob_id, mime_type, data, wanted_at in rows:
        blob = decode_blob(keys, source, blob_id, mime_type, data)
        await connection.execute(_COPY, target, blob_id, *encode_blob(target, blob, keys, tenant), wanted_at)
