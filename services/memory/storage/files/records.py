"""Records of one kind in a folder, each a file that is written whole, and in memory. Everything here blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from services.memory.storage.files.disk import Disk
from services.runtime.clock import now_ms

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


class _Numbered(_Versioned, Protocol):
    @property
    def revision(self) -> int: ...


Numbered = TypeVar("Numbered", bound=_Numbered)
"""A msgspec.Struct with both."""


class NumberedFolder(RecordFolder[Numbered]):
    """Records of which each change has a place among those of all, its revision."""

    def __init__(self, folder: Path, room: DiskRoom, kind: RecordKind[Numbered]) -> None:
        super().__init__(folder, room, kind)
        in_order = sorted(self.list_all(), key=lambda record: record.revision)
        self._records = {kind.get_id(record): record for record in in_order}

    def put(self, record: Numbered) -> bool:
        with self._lock:
            # By the clock: a number that was another change's before a restart would be passed over by who reads on.
            last = next(reversed(self._records.values()), None)
            revision = max(now_ms(), last.revision + 1 if last else 1)
            numbered: Any = msgspec.structs.replace(cast("Any", record), revision=revision)
            return self._put(numbered)

    def list_changes(self, after_revision: int, count: int) -> list[Numbered]:
        newest_first: list[Numbered] = []
        for record in reversed(self.list_all()):
            if record.revision <= after_revision:
                break
            newest_first.append(record)
        return newest_first[::-1][:count]
