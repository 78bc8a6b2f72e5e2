"""Records of one kind in a folder, each a file that is written whole, and in memory. Everything here blocks.

A record whose key cannot be had is left out of lists until it can, and is not written over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from headrace.errors import KeyUnavailable, Overloaded
from services.memory.encryption import envelope
from services.memory.encryption.keyring import NO_KEYS, is_of_tenant
from services.memory.storage.encrypted.records import decrypt_record, encrypt_record, is_current_record
from services.memory.storage.files.disk import Disk
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
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
    get_tenant: Callable[[Record], str] | None = None
    """Whose key it is encrypted with; None: it never is."""


class RecordFolder(Generic[Record]):
    """The records of a folder, which several threads may use; one that cannot be read is left out."""

    def __init__(self, folder: Path, room: DiskRoom, kind: RecordKind[Record], keys: Keyring = NO_KEYS) -> None:
        self._disk = Disk(folder)
        self._keys = keys
        self._room = room
        self._kind = kind
        self._lock = Lock()
        """Held while a record is written."""
        self._records: dict[str, Record] = {}
        """Those that have changed since the start at the end, in the order of their last changes."""
        self._closed: dict[str, bytes] = {}
        """What is stored of records whose keys could not be had."""
        for record_id in self._disk.list_logs():
            try:
                self._read_record(record_id, self._disk.read_log(record_id))
            except OSError as error:
                log.error(f"{kind.name} cannot be read", record_id=record_id, error=str(error))

    def close(self) -> None:
        self._disk.close()

    def list_all(self) -> list[Record]:
        self._open_closed()
        return list(self._records.values())  # without the lock, which is held while the disk writes

    def find(self, record_id: str) -> Record | None:
        """Return the record. Raises KeyUnavailable."""
        self._check_closed(record_id)
        return self._records.get(record_id)

    def find_tenant(self, record_id: str) -> str | None:
        """Return whose record it is; None if it is not there, or cannot be read."""
        record = self._records.get(record_id)
        return self._kind.get_tenant(record) if record is not None and self._kind.get_tenant is not None else None

    def list_ids(self) -> list[str]:
        return list(self._records)

    def list_closed(self, tenant: str) -> list[str]:
        """List the ids of the tenant's records that cannot be read."""
        self._open_closed()
        return [
            record_id
            for record_id, stored in self._closed.items()
            if is_of_tenant(envelope.find_key_id(stored) or b"", tenant)
        ]

    def rewrite(self, record_id: str) -> bool:
        """Write a record as it would be written now, if it is not so; return whether it was."""
        with self._lock:
            record = self._records.get(record_id)
            if record is None or self._kind.get_tenant is None:
                return False
            stored, wanted = self._disk.read_log(record_id), self._keys.encrypts
            tenant = self._kind.get_tenant(record)
            if is_current_record(stored, self._keys, tenant) or (wanted and not tenant):
                return False
            with self._room.writing(record_id):
                self._disk.rewrite_log(record_id, self._encode(record))
            return True

    def put(self, record: Record, before: int = 0) -> bool:
        """Store a record; return False if what is stored is not of the version `before`; 0: there is none."""
        with self._lock:
            return self._put(record, before)

    def delete(self, record_id: str) -> None:
        """Delete a record, also one that cannot be read."""
        with self._lock, self._room.writing(record_id):
            self._disk.delete_log(record_id)
            self._records.pop(record_id, None)
            self._closed.pop(record_id, None)

    def _read_record(self, record_id: str, stored: bytes) -> None:
        try:
            data = decrypt_record(self._kind.name, record_id, stored, self._keys)
            self._records[record_id] = self._kind.decode(data)
        except (KeyUnavailable, Overloaded):
            self._closed[record_id] = stored
        except ValueError as error:
            log.error(f"{self._kind.name} cannot be read", record_id=record_id, error=type(error).__name__)

    def _open_closed(self) -> None:
        """Read records whose keys can be had by now; where none was unreadable it costs nothing."""
        for record_id, stored in list(self._closed.items()):
            key_id = envelope.find_key_id(stored)
            if key_id is not None and self._keys.can_open(key_id):
                self._closed.pop(record_id, None)
                self._read_record(record_id, stored)

    def _check_closed(self, record_id: str) -> None:
        self._open_closed()
        if record_id in self._closed:
            raise KeyUnavailable(f"the {self._kind.name} cannot be read: its key cannot be had")

    def _encode(self, record: Record) -> bytes:
        data = self._kind.encode(record)
        tenant = self._kind.get_tenant(record) if self._kind.get_tenant is not None else ""
        return encrypt_record(self._kind.name, self._kind.get_id(record), data, self._keys, tenant) if tenant else data

    def _put(self, record: Record, before: int) -> bool:
        record_id = self._kind.get_id(record)
        self._check_closed(record_id)
        stored = self._records.get(record_id)
        if (stored.version if stored is not None else 0) != before:
            return False
        with self._room.writing(record_id):
            self._disk.rewrite_log(record_id, self._encode(record))
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

    def __init__(self, folder: Path, room: DiskRoom, kind: RecordKind[Numbered], keys: Keyring = NO_KEYS) -> None:
        super().__init__(folder, room, kind, keys)
        self._sort()

    def _open_closed(self) -> None:
        if self._closed:
            super()._open_closed()
            self._sort()

    def _sort(self) -> None:
        in_order = sorted(self._records.values(), key=lambda record: record.revision)
        self._records = {self._kind.get_id(record): record for record in in_order}

    def put(self, record: Numbered, before: int = 0) -> bool:
        with self._lock:
            # By the clock: a number that was another change's before a restart would be passed over by who reads on.
            last = next(reversed(self._records.values()), None)
            revision = max(now_ms(), last.revision + 1 if last else 1)
            numbered: Any = msgspec.structs.replace(cast("Any", record), revision=revision)
            return self._put(numbered, before)

    def list_changes(self, after_revision: int, count: int) -> list[Numbered]:
        newest_first: list[Numbered] = []
        for record in reversed(self.list_all()):
            if record.revision <= after_revision:
                break
            newest_first.append(record)
        return newest_first[::-1][:count]
