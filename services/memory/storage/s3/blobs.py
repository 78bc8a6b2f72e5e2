"""Blobs as objects, `blobs/<chatId>/<SHA-256>`: the MIME type, a line break and the content, or all of that encrypted.

An object is in the bucket before any line that refers to it. Blobs that an engine stored itself before there was a
bucket are read from there until they are moved. When a chat with objects is deleted, `deletions/<chatId>` lists them
from before the log is deleted until they are gone, so that an unavailable bucket loses none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from headrace.errors import NotFound
from services.memory.encryption.envelope import HEAD_BYTES
from services.memory.log.media import Blob, is_blob_id
from services.memory.storage.encrypted.records import decrypt_blob, encrypt_blob
from services.memory.storage.s3.errors import make_away_error
from services.runtime.clock import now_s
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.engine import Blobs, ChatIndex
    from services.memory.storage.s3.bucket import Bucket

TOGETHER = 8
"""Objects of a chat requested concurrently."""

WAITING_MAX = 64
"""Maximum threads that wait for the bucket; the next is refused immediately."""

FORGET_S = 24 * 60 * 60
"""Time after which a chat that still exists is assumed not to have been deleted."""

_BLOBS, _DELETIONS = "blobs/", "deletions/"

log = structlog.get_logger()


class S3Blobs:
    """The blobs of all chats. The event loop's thread must not call `find`."""

    def __init__(self, bucket: Bucket, earlier: Blobs, index: ChatIndex, keys: Keyring) -> None:
        self.earlier = earlier
        """The engine's own blobs."""
        self._bucket, self._index, self._keys = bucket, index, keys
        self._loop = asyncio.get_running_loop()
        self._waiting = threading.Semaphore(WAITING_MAX)

    async def put_all(self, chat_id: str, tenant: str, blobs: Iterable[Blob]) -> None:
        await _do_all([partial(self._put, chat_id, tenant, blob) for blob in blobs])

    async def load(self, chat_id: str, blob_id: str) -> Blob | None:
        return await asyncio.to_thread(self.find, chat_id, blob_id)

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        if not is_blob_id(blob_id):
            return None
        # The engine first: a moved blob is in the bucket before it is removed there.
        if (blob := self.earlier.find(chat_id, blob_id)) is not None:
            return blob
        if not self._waiting.acquire(blocking=False):
            raise make_away_error("too many wait for it")
        try:
            found = asyncio.run_coroutine_threadsafe(self._bucket.get(_name(chat_id, blob_id)), self._loop).result()
        finally:
            self._waiting.release()
        return _decode(chat_id, blob_id, found[0], self._keys) if found else None

    async def list_all(self, chat_id: str) -> list[Blob]:
        found = [await self.load(chat_id, blob_id) for blob_id in await self.list_objects(chat_id)]
        there = {blob.id: blob for blob in [*await self.earlier.list_all(chat_id), *filter(None, found)]}
        return [blob for _, blob in sorted(there.items())]

    async def list_ids(self, chat_id: str) -> list[str]:
        return sorted({*await self.earlier.list_ids(chat_id), *await self.list_objects(chat_id)})

    async def delete_each(self, chat_id: str, blob_ids: Collection[str]) -> None:
        for blob_id in blob_ids:
            await self._bucket.delete(_name(chat_id, blob_id))
        await self.earlier.delete_each(chat_id, blob_ids)

    async def delete_orphans(self, age_s: float) -> list[str]:
        await self.finish_deletions()
        before_s, orphans = now_s() - age_s, await self.earlier.delete_orphans(age_s)
        folders = [name async for name in self._bucket.list_folders(_BLOBS) if is_uuid(name)]
        chats = set(await self._index.list_chats()) if folders else set[str]()
        for chat_id in folders:
            if chat_id in chats:
                continue
            entries = [entry async for entry in self._bucket.list(f"{_BLOBS}{chat_id}/")]
            if all(entry.changed_at_s < before_s for entry in entries):
                await _do_all([partial(self._bucket.delete, entry.key) for entry in entries])
                orphans.append(chat_id)
        return orphans

    async def finish_deletions(self) -> None:
        await self.earlier.finish_deletions()
        async for entry in self._bucket.list(_DELETIONS):
            chat_id = entry.key.removeprefix(_DELETIONS)
            if not await self._has_chat(chat_id):
                await self.finish_deletion(chat_id)
            elif entry.changed_at_s < now_s() - FORGET_S:
                await self._bucket.delete(entry.key)

    async def begin_deletion(self, chat_id: str) -> bool:
        """Record the objects of a chat that is about to be deleted; return whether there are any."""
        blob_ids = await self.list_objects(chat_id)
        if blob_ids:
            await self._bucket.put(_DELETIONS + chat_id, "\n".join(blob_ids).encode())
        return bool(blob_ids)

    async def finish_deletion(self, chat_id: str) -> None:
        """Delete the recorded objects of a deleted chat."""
        noted = await self._bucket.get(_DELETIONS + chat_id)
        if noted is not None:
            names = [_name(chat_id, blob_id) for blob_id in noted[0].decode().split("\n")]
            await _do_all([partial(self._bucket.delete, name) for name in names])
            await self._bucket.delete(_DELETIONS + chat_id)

    async def copy_all(self, source: str, target: str, tenant: str) -> None:
        """Copy the objects of a tenant's chat to another of its chats, which does not exist yet."""
        await _do_all(
            [partial(self._copy, source, target, tenant, blob_id) for blob_id in await self.list_objects(source)]
        )

    async def move_chat(self, chat_id: str) -> int:
        """Move the engine's own blobs of a chat to the bucket; return their number. Raises NotFound."""
        tenant = (await self._index.find_row(chat_id)).tenant
        blobs = await self.earlier.list_all(chat_id)
        for blob in blobs:
            await self._put(chat_id, tenant, blob)
            if not await self._has_chat(chat_id):  # deleted in the meantime
                await self._bucket.delete(_name(chat_id, blob.id))
            await self.earlier.delete_each(chat_id, [blob.id])
        return len(blobs)

    async def list_pieces(self) -> AsyncIterator[tuple[str, Callable[[], Awaitable[bool]]]]:
        """Yield the pieces that run_pass converts to their current form."""
        async for chat_id in self._bucket.list_folders(_BLOBS):
            yield f"blobs of chat {chat_id}", partial(self._rewrite_chat, chat_id)

    async def _rewrite_chat(self, chat_id: str) -> bool:
        try:
            tenant = (await self._index.find_row(chat_id)).tenant
        except NotFound:  # no one needs them
            return False
        await self._keys.prepare_newest(tenant)
        return any([await self._rewrite(chat_id, tenant, blob_id) for blob_id in await self.list_objects(chat_id)])

    async def _rewrite(self, chat_id: str, tenant: str, blob_id: str) -> bool:
        name = _name(chat_id, blob_id)
        head = await self._bucket.get_head(name, HEAD_BYTES)
        if head is None or self._keys.is_current(tenant, head) or (found := await self._bucket.get(name)) is None:
            return False
        blob = await asyncio.to_thread(_decode, chat_id, blob_id, found[0], self._keys)
        # Conditional, so that an object deleted in the meantime does not reappear.
        return blob is not None and await self._bucket.replace(
            name, encrypt_blob(chat_id, blob_id, blob.encode(), self._keys, tenant), found[1]
        )

    async def _put(self, chat_id: str, tenant: str, blob: Blob) -> None:
        await self._keys.prepare(tenant)
        stored = await asyncio.to_thread(encrypt_blob, chat_id, blob.id, blob.encode(), self._keys, tenant)
        await self._bucket.put(_name(chat_id, blob.id), stored)

    async def _copy(self, source: str, target: str, tenant: str, blob_id: str) -> None:
        blob = await asyncio.to_thread(self.find, source, blob_id)
        if blob is not None:
            await self._put(target, tenant, blob)

    async def list_objects(self, chat_id: str) -> list[str]:
        return await _list_names(self._bucket, chat_id)

    async def _has_chat(self, chat_id: str) -> bool:
        try:
            await self._index.find_row(chat_id)
        except NotFound:
            return False
        return True


async def list_damaged(bucket: Bucket, chat_id: str, keys: Keyring) -> list[str]:
    """List the chat's objects with content that does not match their name. Raises KeyUnavailable, Overloaded."""
    damaged: list[str] = []

    async def check(blob_id: str) -> None:
        found = await bucket.get(_name(chat_id, blob_id))  # None if deleted in the meantime
        if found is not None and await asyncio.to_thread(_decode, chat_id, blob_id, found[0], keys) is None:
            damaged.append(blob_id)

    await _do_all([partial(check, blob_id) for blob_id in await _list_names(bucket, chat_id)])
    return sorted(damaged)


def _decode(chat_id: str, blob_id: str, stored: bytes, keys: Keyring) -> Blob | None:
    return Blob.decode(decrypt_blob(chat_id, blob_id, stored, keys)).check_id(chat_id, blob_id)


async def _list_names(bucket: Bucket, chat_id: str) -> list[str]:
    assert is_uuid(chat_id), "nothing but a UUID becomes a name"
    folder = f"{_BLOBS}{chat_id}/"
    names = [entry.key.removeprefix(folder) async for entry in bucket.list(folder)]
    return list(filter(is_blob_id, names))


def _name(chat_id: str, blob_id: str) -> str:
    assert is_uuid(chat_id), "nothing but a UUID becomes a name"
    return f"{_BLOBS}{chat_id}/{blob_id}"


async def _do_all(works: list[Callable[[], Awaitable[None]]]) -> None:
    """Run all works, some concurrently; the first error is raised bare once all have stopped."""
    todo = iter(works)

    async def work() -> None:
        for do in todo:
            await do()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(TOGETHER, len(works))):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
