"""Blobs in files named by their content. Everything here blocks.

`blobs/<chatId>/<SHA-256>` holds the MIME type, a line break, and the content, or all of that encrypted. A blob is on
disk before any line that refers to it. The modification time of a chat's folder is that of the last `put`, even of a
known blob.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from typing import TYPE_CHECKING

from services.memory.encryption.envelope import HEAD_BYTES
from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.media import Blob, is_blob_id
from services.memory.storage.encrypted.records import decrypt_blob, encrypt_blob
from services.memory.storage.files.disk import delete_unfinished, disk_errors
from services.runtime.clock import now_ms
from services.runtime.files.disk import make_folder, sync_folder, write_whole
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.files.indexing.index import Index


class BlobFolder:
    """The blobs of a folder; several threads may use it."""

    def __init__(self, folder: Path, keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._opened_s = now_ms() / 1000
        self._keys = keys
        self._wanted = threading.Lock()
        """Held while a chat's folder is created, touched or deleted."""

    def put_blob(self, chat_id: str, blob: Blob, tenant: str) -> None:
        """Store a blob of a tenant's chat, on disk on return; an existing one is unchanged."""
        path = self._get_path(chat_id, blob.id)
        with self._wanted:
            make_folder(path.parent)
            os.utime(path.parent)
        if path.exists():
            sync_folder(path.parent)  # the process that wrote it may have been killed before
        else:
            write_whole(path, encrypt_blob(chat_id, blob.id, blob.encode(), self._keys, tenant))

    def find_blob(self, chat_id: str, blob_id: str) -> Blob | None:
        if not is_blob_id(blob_id):
            return None
        try:
            kept = self._get_path(chat_id, blob_id).read_bytes()
        except FileNotFoundError:
            return None
        plain = decrypt_blob(chat_id, blob_id, kept, self._keys)
        return Blob.decode(plain).check_id(chat_id, blob_id)

    def iterate_blobs(self, chat_id: str) -> Iterator[Blob]:
        return filter(None, (self.find_blob(chat_id, name) for name in self._list_names(chat_id)))

    def list_damaged(self, chat_id: str) -> list[str]:
        """List the chat's blobs with content that does not match their name."""
        return [name for name in self._list_names(chat_id) if self.find_blob(chat_id, name) is None]

    def rewrite_blobs(self, chat_id: str, tenant: str) -> bool:
        """Rewrite the chat's blobs that are not in their current form; return whether there were any.

        Raises KeyUnavailable, Overloaded.
        """
        has_changed = False
        for blob_id in self._list_names(chat_id):
            path = self._get_path(chat_id, blob_id)
            try:
                with path.open("rb") as file:
                    is_current = self._keys.is_current(tenant, file.read(HEAD_BYTES))
                if is_current or (blob := self.find_blob(chat_id, blob_id)) is None:
                    continue
                with disk_errors(chat_id):
                    write_whole(path, encrypt_blob(chat_id, blob.id, blob.encode(), self._keys, tenant))
            except FileNotFoundError:  # the chat is being deleted
                return has_changed
            has_changed = True
        return has_changed

    def copy_blobs(self, source: str, target: str, tenant: str) -> None:
        for blob in self.iterate_blobs(source):
            self.put_blob(target, blob, tenant)

    def delete_blobs(self, chat_id: str) -> None:
        if self._get_chat_folder(chat_id).exists():
            shutil.rmtree(self._get_chat_folder(chat_id))

    def list_ids(self, chat_id: str) -> list[str]:
        return self._list_names(chat_id)

    def delete_each(self, chat_id: str, blob_ids: Iterable[str]) -> None:
        for blob_id in filter(is_blob_id, blob_ids):
            self._get_path(chat_id, blob_id).unlink(missing_ok=True)
        if (folder := self._get_chat_folder(chat_id)).exists():
            sync_folder(folder)  # also where an earlier try has deleted them, and could not

    def delete_unfinished(self, chat_id: str) -> None:
        """Delete the chat's partial blob files that an earlier process left when it was killed."""
        delete_unfinished(self._get_chat_folder(chat_id), self._opened_s)

    def list_unused_since(self, time_s: float) -> list[str]:
        """List chats with no blob stored since `time_s` (Unix)."""
        if not self._folder.exists():
            return []
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries if is_uuid(entry.name) and entry.stat().st_mtime < time_s]

    def delete_unused(self, chat_id: str, time_s: float) -> bool:
        """Delete all blobs of a chat unless one was stored since `time_s`; return whether they were deleted."""
        with self._wanted:
            if self._get_chat_folder(chat_id).stat().st_mtime >= time_s:
                return False
            self.delete_blobs(chat_id)
        return True

    def _list_names(self, chat_id: str) -> list[str]:
        folder = self._get_chat_folder(chat_id)
        return sorted(filter(is_blob_id, os.listdir(folder))) if folder.exists() else []

    def _get_path(self, chat_id: str, blob_id: str) -> Path:
        return self._get_chat_folder(chat_id) / blob_id

    def _get_chat_folder(self, chat_id: str) -> Path:
        assert is_uuid(chat_id), "nothing but a UUID becomes a path"
        return self._folder / chat_id


class FileBlobs:
    def __init__(self, folder: BlobFolder, index: Index, room: DiskRoom, keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._keys = keys
        self._room = room
        self._index = index

    async def put_all(self, chat_id: str, tenant: str, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            await self._keys.prepare(tenant)
            with self._room.writing(chat_id):
                await asyncio.to_thread(self._folder.put_blob, chat_id, blob, tenant)

    async def load(self, chat_id: str, blob_id: str) -> Blob | None:
        return await asyncio.to_thread(self.find, chat_id, blob_id)

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        with disk_errors(chat_id):
            return self._folder.find_blob(chat_id, blob_id)

    async def list_all(self, chat_id: str) -> list[Blob]:
        return await asyncio.to_thread(lambda: list(self._folder.iterate_blobs(chat_id)))

    async def list_ids(self, chat_id: str) -> list[str]:
        with disk_errors(chat_id):
            return await asyncio.to_thread(self._folder.list_ids, chat_id)

    async def delete_each(self, chat_id: str, blob_ids: Collection[str]) -> None:
        with disk_errors(chat_id):
            await asyncio.to_thread(self._folder.delete_each, chat_id, blob_ids)

    async def finish_deletions(self) -> None:
        """Do nothing: a chat's folder is deleted with it, or as an orphan."""

    async def delete_orphans(self, age_s: float) -> list[str]:
        before_s = now_ms() / 1000 - age_s
        unused = await asyncio.to_thread(self._folder.list_unused_since, before_s)
        chats = set(await self._index.list_chats()) if unused else set[str]()
        orphans = [chat_id for chat_id in unused if chat_id not in chats]
        return [orphan for orphan in orphans if await asyncio.to_thread(self._folder.delete_unused, orphan, before_s)]
