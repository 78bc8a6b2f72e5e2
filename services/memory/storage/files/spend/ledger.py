"""What deleted chats have cost, in a file that the index is made from beside the logs.

It is written before a chat's log goes, as chats are: append, sync, and a tail cut by a crash is set aside. Blocks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import structlog

from headrace.errors import HeadraceError
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.recovery import read_chat
from services.memory.storage.files.disk import Disk, list_log_names, read_log_file
from services.memory.storage.spend.rows import SpendKey, SpendRow, SpendSum

log = structlog.get_logger()

_FILE = str(uuid.uuid5(uuid.UUID("3b7f8f0c-3c0e-4f5f-9c1e-6d5a3a0e7c55"), ""))


class _Entry(msgspec.Struct, rename="camel"):
    chat_id: str
    created_at: int
    rows: list[dict[str, Any]]


_ENTRY = msgspec.json.Decoder(_Entry)


class SpendLedger:
    def __init__(self, folder: Path) -> None:
        """Open nothing: most services delete no chat."""
        self._folder = folder
        self._lock = Lock()
        self._disk: Disk | None = None
        self._end = 0

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def add_chat(self, chat_id: str, created_at: int, rows: Collection[SpendRow]) -> None:
        """Store what a chat has cost; on disk when this returns."""
        if not rows:
            return
        entry = _Entry(chat_id, created_at, [asdict(key) | asdict(total) for key, total in rows])
        data = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            disk = self._disk = self._disk or self._open()
            disk.append(_FILE, self._end, data)
            self._end += len(data)

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> int:
        """Have `change` of each row in its place, none where that is None; return how many it changed."""
        with self._lock:
            try:
                data = read_log_file(self._folder, _FILE)
            except FileNotFoundError:
                return 0
            entries = list(_decode_entries(data))
            changed = 0
            for entry in entries:
                rows = [change(row) for row in entry.rows]
                changed += sum(new != old for new, old in zip(rows, entry.rows, strict=True))
                entry.rows = [row for row in rows if row is not None]
            if changed:
                disk = self._disk = self._disk or self._open()
                data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries if entry.rows)
                disk.rewrite_log(_FILE, data)
                self._end = len(data)
            return changed

    def _open(self) -> Disk:
        disk = Disk(self._folder)
        try:
            data = disk.read_log(_FILE) if _FILE in disk.list_logs() else b""
            self._end = data.rfind(b"\n") + 1
            if self._end < len(data):
                disk.set_aside(_FILE, self._end, data[self._end :])
        except BaseException:
            disk.close()
            raise
        return disk


def read_deleted_spend(folder: Path, logs: Path, keys: Keyring = NO_KEYS) -> list[SpendRow]:
    """Read the rows of all chats but those in the folder `logs` whose deletion was not completed: a chat of the same id
    that was made later is another one."""
    try:
        data = read_log_file(folder, _FILE)
    except FileNotFoundError:
        return []
    existing = set(list_log_names(logs))
    # A chat that was deleted once more, as the first time was cut, has its last entry alone.
    entries = {(entry.chat_id, entry.created_at): entry for entry in _decode_entries(data)}
    return [
        row
        for entry in entries.values()
        if entry.chat_id not in existing or _read_created_at(logs, entry.chat_id, keys) != entry.created_at
        for row in _make_rows(entry)
    ]


def _read_created_at(logs: Path, chat_id: str, keys: Keyring) -> int:
    """Return when a chat was made; 0 if its log cannot be decrypted."""
    try:
        return read_chat(chat_id, read_log_file(logs, chat_id), keys).info.created_at
    except HeadraceError:
        return 0


def _decode_entries(data: bytes) -> Iterator[_Entry]:
    """Decode what can be: one bad line must not keep the index from being made anew."""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            yield _ENTRY.decode(line)
        except ValueError as error:
            log.error("spend of a deleted chat not read", line=number, problem=str(error))


def _make_rows(entry: _Entry) -> Iterator[SpendRow]:
    for row in entry.rows:
        try:
            key, total = ({name: row[name] for name in kind.__dataclass_fields__} for kind in (SpendKey, SpendSum))
            yield msgspec.convert(key, SpendKey), msgspec.convert(total, SpendSum)
        except (KeyError, ValueError) as error:
            log.error("spend of a deleted chat not read", chat_id=entry.chat_id, problem=str(error))
