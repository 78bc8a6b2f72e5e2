"""What a store of files keeps beside its logs and their index."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.storage.files.agents.definitions import AgentFolder
from services.memory.storage.files.agents.versions import VersionFolder
from services.memory.storage.files.api_keys.keys import KeyFolder
from services.memory.storage.files.blobs import BlobFolder
from services.memory.storage.files.indexing.index_recovery import SPEND
from services.memory.storage.files.outbox import Outbox
from services.memory.storage.files.people.records import FileDataRecords
from services.memory.storage.files.records import RecordFolder
from services.memory.storage.files.schedules import SCHEDULES
from services.memory.storage.files.spend.ledger import SpendLedger
from services.memory.storage.files.user_facts import FactLog
from services.memory.storage.people.records import StoredErasure, StoredHold
from services.memory.storage.records.schedules import Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk_room import DiskRoom


@dataclass(frozen=True, slots=True)
class Folders:
    outbox: Outbox
    facts: FactLog
    schedules: RecordFolder[Schedule]
    versions: VersionFolder
    agents: AgentFolder
    keys: KeyFolder
    erasures: FileDataRecords[StoredErasure]
    holds: FileDataRecords[StoredHold]
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
            facts = FactLog(path / "facts", room, keyring)
            opening.callback(facts.close)
            schedules = RecordFolder(path / "schedules", room, SCHEDULES, keyring)
            opening.callback(schedules.close)
            agents = AgentFolder(path / "agents" / "current", room, keyring)
            opening.callback(agents.close)
            keys = KeyFolder(path / "keys", room)
            opening.callback(keys.close)
            erasures = FileDataRecords(path / "erasures", room, "erasure", StoredErasure)
            opening.callback(erasures.close)
            holds = FileDataRecords(path / "holds", room, "hold", StoredHold)
            opening.callback(holds.close)
            ledger = SpendLedger(path / SPEND)
            opening.callback(ledger.close)
            return cls(
                outbox,
                facts,
                schedules,
                VersionFolder(path / "agents" / "versions", room, keyring),
                agents,
                keys,
                erasures,
                holds,
                ledger,
                BlobFolder(path / "blobs", keyring),
                opening.pop_all(),
            )

    def close(self) -> None:
        self._open.close()
