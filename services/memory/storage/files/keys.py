"""API keys in a folder, each a file that is written whole, and in memory. Everything but FileKeys blocks."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import structlog

from services.memory.storage.files.disk import Disk
from services.memory.storage.keys import StoredKey, decode_key, encode_key
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom

log = structlog.get_logger()


class KeyFolder:
    def __init__(self, folder: Path, room: DiskRoom) -> None:
        self._disk = Disk(folder)
        self._room = room
        self._lock = Lock()
        self._disk.delete_unfinished()
        self._keys: dict[str, StoredKey] = {}
        """In the order of their last changes."""
        found: list[StoredKey] = []
        for key_id in self._disk.list_logs():
            try:
                found.append(decode_key(self._disk.read_log(key_id)))
            except (OSError, msgspec.DecodeError) as error:
                # Without it the key is unknown, and so refused.
                log.error("api key cannot be read", key_id=key_id, error=str(error))
        self._keys.update((key.key_id, key) for key in sorted(found, key=lambda key: key.revision))

    def close(self) -> None:
        self._disk.close()

    def list_all(self) -> list[StoredKey]:
        return list(self._keys.values())  # without the lock, which is held while the disk writes

    def find(self, key_id: str) -> StoredKey | None:
        return self._keys.get(key_id)

    def put(self, key: StoredKey) -> bool:
        key_id = key.key_id
        with self._lock:
            before = self._keys.get(key_id)
            if key.version != (before.version if before else 0) + 1:
                return False
            last = next(reversed(self._keys.values()), None)
            # By the clock: a number that was another change's before a restart would be passed over by who reads on.
            key = msgspec.structs.replace(key, revision=max(now_ms(), last.revision + 1 if last else 1))
            with self._room.writing(key_id):
                self._disk.rewrite_log(key_id, encode_key(key))
            self._keys.pop(key_id, None)
            self._keys[key_id] = key
            return True

    def delete(self, key_id: str) -> None:
        with self._lock, self._room.writing(key_id):
            self._disk.delete_log(key_id)
            self._keys.pop(key_id, None)

    def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        newest_first: list[StoredKey] = []
        for key in reversed(self.list_all()):
            if key.revision <= after_revision:
                break
            newest_first.append(key)
        return newest_first[::-1][:count]


class FileKeys:
    def __init__(self, folder: KeyFolder) -> None:
        self._folder = folder

    async def list_own(self, tenant: str) -> list[StoredKey]:
        own = (key for key in self._folder.list_all() if key.tenant == tenant)
        return sorted(own, key=lambda key: (key.created_at, key.key_id))

    async def list_all(self) -> list[StoredKey]:
        return self._folder.list_all()

    async def count_all(self) -> int:
        return len(self._folder.list_all())

    async def find(self, key_id: str) -> StoredKey | None:
        return self._folder.find(key_id)

    async def put(self, key: StoredKey) -> bool:
        return await asyncio.to_thread(self._folder.put, key)

    async def delete(self, key_id: str) -> None:
        await asyncio.to_thread(self._folder.delete, key_id)

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        return self._folder.list_changes(after_revision, count)
