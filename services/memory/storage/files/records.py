"""Records of one kind in a folder, each a file that is written whole, and in memory. Everything here blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import structlog

from services.memory.storage.files.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.storage.files.disk_room import DiskRoom

log = structlog.get_logger()


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


Record = TypeVar("Record", bound=_Versioned)


@dataclass(frozen=True)
class RecordKind(Generic[Record]):
    name: str
    """In the line of the log that names a file which cannot be read."""
    get_id: Callable[[Record], str]
    encode: Callable[[Record], bytes]
    decode: Callable[[bytes], Record]


class RecordFolder(Generic[Record]):
    """The records of a folder, which several threads may use; one that cannot be read is left out."""

    def __init__(self, folder: Path, room: DiskRoom, kind: RecordKind[Record]) -> None:
        self._disk = Disk(folder)
        self._room = room
        self._kind = kind
        self._lock = Lock()
        """Held while a record is written."""
        self._disk.delete_unfinished()
        self._records: dict[str, Record] = {}
        """Those that have changed since the start at the end, in the order of their last changes."""
        for record_id in self._disk.list_logs():
            try:
                self._records[record_id] = kind.decode(self._disk.read_log(record_id))
            except (OSError, msgspec.DecodeError) as error:
                log.error(f"{kind.name} cannot be read", record_id=record_id, error=str(error))

    def close(self) -> None:
        self._disk.close()

    def list_all(self) -> list[Record]:
        return list(self._records.values())  # without the lock, which is held while the disk writes

    def find(self, record_id: str) -> Record | None:
        return self._records.get(record_id)

    def put(self, record: Record) -> bool:
        """Return False where another change came before, which `version` tells."""
        with self._lock:
            return self._put(record)

    def delete(self, record_id: str) -> None:
        with self._lock, self._room.writing(record_id):
            self._disk.delete_log(record_id)
            self._records.pop(record_id, None)

    def _put(self, record: Record) -> bool:
        record_id = self._kind.get_id(record)
        before = self._records.get(record_id)
        if record.version != (before.version if before else 0) + 1:
            return False
        with self._room.writing(record_id):
            self._disk.rewrite_log(record_id, self._kind.encode(record))
        self._records.pop(record_id, None)
        self._records[record_id] = record
        return True
