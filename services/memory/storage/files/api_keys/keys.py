"""API keys in a folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.storage.files.records import NumberedFolder, RecordKind
from services.memory.storage.records.keys import StoredKey, decode_key, encode_key

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom


class KeyFolder(NumberedFolder[StoredKey]):
    """A key that cannot be read is unknown, and so refused."""

    def __init__(self, folder: Path, room: DiskRoom) -> None:
        super().__init__(folder, room, RecordKind("api key", lambda key: key.key_id, encode_key, decode_key))


class FileKeys:
    def __init__(self, folder: KeyFolder) -> None:
        self._folder = folder

    async def list_own(self, tenant: str, *, suspends: bool = False) -> list[StoredKey]:
        own = (key for key in self._folder.list_all() if key.tenant == tenant and key.suspends == suspends)
        return sorted(own, key=lambda key: (key.created_at, key.key_id))

    async def list_all(self) -> list[StoredKey]:
        return self._folder.list_all()

    async def count_all(self) -> int:
        return len(self._folder.list_all())

    async def find(self, key_id: str) -> StoredKey | None:
        return self._folder.find(key_id)

    async def put(self, key: StoredKey, before: int = 0) -> bool:
        return await asyncio.to_thread(self._folder.put, key, before)

    async def delete(self, key_id: str) -> None:
        await asyncio.to_thread(self._folder.delete, key_id)

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        return self._folder.list_changes(after_revision, count)
