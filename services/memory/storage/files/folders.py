"""What a store of files keeps beside its logs and their index."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.storage.files.blobs import BlobFolder
from services.memory.storage.files.indexing.index_recovery import SPEND
from services.memory.storage.files.older_records import OLDER, import_older
from services.memory.storage.files.outbox import Outbox
from services.memory.storage.files.spend.ledger import SpendLedger
from services.memory.storage.files.sqlite import SqliteSql
from services.memory.storage.records.stores import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk_room import DiskRoom

NAME = "records.sqlite"


@dataclass(frozen=True, slots=True)
class Folders:
    outbox: Outbox
    records: SqliteSql
    ledger: SpendLedger
    blobs: BlobFolder
    _open: ExitStack

    @classmethod
    def open(cls, path: Path, room: DiskRoom, keyring: Keyring) -> Folders:
        """Read what lies in `path`. Blocks.

        Raises:
            OSError: It cannot be read or written now.
        """
        with ExitStack() as opening:
            outbox = Outbox(path)
            opening.callback(outbox.close)
            records = SqliteSql(path / NAME, room, TABLES, path / OLDER)
            opening.callback(records.close)
            import_older(path, records, keyring)
            ledger = SpendLedger(path / SPEND)
            opening.callback(ledger.close)
            return cls(outbox, records, ledger, BlobFolder(path / "blobs", keyring), opening.pop_all())

    def close(self) -> None:
        self._open.close()
