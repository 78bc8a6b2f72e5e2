"""A file is closed only after a transaction that a cancelled task left in a thread, because SQLite would crash."""

import asyncio
import threading
from pathlib import Path

import pytest

from services.memory.storage.files.disk_room import DiskRoom
from services.memory.storage.files.sqlite import SqliteSql

READ = ("SELECT 1", ())


async def test_closing_waits_for_the_transaction_of_a_cancelled_task(tmp_path: Path) -> None:
    file = SqliteSql(tmp_path / "records.sqlite", DiskRoom(tmp_path), (), tmp_path / "older")
    has_started, may_end = threading.Event(), threading.Event()

    def decide(rows: object) -> tuple[list[tuple[str, tuple[()]]], None]:
        has_started.set()
        may_end.wait(60)
        return [READ], None

    deciding = asyncio.create_task(file.decide("", READ, decide))
    await asyncio.to_thread(has_started.wait, 60)
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    closing = asyncio.create_task(asyncio.to_thread(file.close))
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done
    may_end.set()
    await closing
