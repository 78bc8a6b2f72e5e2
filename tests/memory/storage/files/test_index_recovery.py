"""Making the index of many logs: in portions, stopped and gone on with."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing import index_recovery
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME, open_index
from tests.support.memory.admin_cli import copies
from tests.support.memory.engines import Serve


async def test_every_log_is_taken_in_however_many_there_are(serve: Serve, folder: Path) -> None:
    chats = await copies(serve, folder)
    with closing(Disk(folder)) as disk:
        async with open_files(disk) as engine:
            await engine.index.wait_until_complete()
        with closing(open_index(disk)) as opened:
            assert opened.backlog == {}
            assert set(opened.database.list_logs()) == chats
            assert opened.database.list_logs() == disk.list_logs()
            entry = opened.database.find_chat(min(chats))
    assert entry is not None
    assert entry.name == "水车"


async def test_a_start_reads_what_was_changed_last_and_no_more_than_is_read_at_once(serve: Serve, folder: Path) -> None:
    chats = sorted(await copies(serve, folder, 4))
    for at_s, chat_id in enumerate(chats, 1_000_000):
        os.utime(folder / f"{chat_id}.json", (at_s, at_s))
    large = folder / f"{chats[-2]}.json"
    large.write_bytes(large.read_bytes().replace("水车".encode(), b"x" * (index_recovery.START_BYTES_MAX + 1)))
    os.utime(large, (1_000_002, 1_000_002))
    with closing(Disk(folder)) as disk, closing(open_index(disk)) as opened:
        assert list(opened.database.list_logs()) == [chats[-1]]
        assert list(opened.backlog) == [chats[2], chats[1], chats[0]]


async def test_a_start_that_is_stopped_leaves_what_the_next_one_goes_on_with(serve: Serve, folder: Path) -> None:
    chats = await copies(serve, folder)
    with closing(Disk(folder)) as disk:
        async with asyncio.timeout(300):
            opening_it = asyncio.create_task(open_files(disk).__aenter__())
            while not (folder / INDEX_NAME).exists():
                await asyncio.sleep(0.001)
            opening_it.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening_it
        async with open_files(disk) as engine:
            await engine.index.wait_until_complete()
            assert set(await engine.index.list_chats()) == chats
