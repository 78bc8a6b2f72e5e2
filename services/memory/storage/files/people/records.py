"""Erasures and holds in folders."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

import msgspec

from services.memory.storage.files.records import RecordFolder, RecordKind
from services.memory.storage.people.records import Record

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom


class FileDataRecords(Generic[Record]):
    def __init__(self, folder: Path, room: DiskRoom, name: str, struct: type[Record]) -> None:
        """Read the folder; blocks."""
        decoder = msgspec.json.Decoder(struct)
        kind = RecordKind[Record](name, lambda record: record.record_id, msgspec.json.encode, decoder.decode)
        self._folder = RecordFolder(folder, room, kind)

    def close(self) -> None:
        self._folder.close()

    async def list_all(self) -> list[Record]:
        return self._folder.list_all()

    async def find(self, record_id: str) -> Record | None:
        return self._folder.find(record_id)

    async def put(self, record: Record, before: int = 0) -> bool:
        return await asyncio.to_thread(self._folder.put, record, before)
