"""API keys of a scripted memory: the real RPCs and rules over a dict."""

from __future__ import annotations

from services.memory.keys.store import KeyStore
from services.memory.storage.records.keys import StoredKey


class ListedKeys:
    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}

    async def list_own(self, tenant: str) -> list[StoredKey]:
        return [*self._keys.values()]

    async def list_all(self) -> list[StoredKey]:
        return [*self._keys.values()]

    async def count_all(self) -> int:
        return len(self._keys)

    async def find(self, key_id: str) -> StoredKey | None:
        return self._keys.get(key_id)

    async def put(self, key: StoredKey, before: int = 0) -> bool:
        self._keys[key.key_id] = key
        return True

    async def delete(self, key_id: str) -> None:
        self._keys.pop(key_id, None)

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        return []


def make_key_store() -> KeyStore:
    return KeyStore(ListedKeys())
