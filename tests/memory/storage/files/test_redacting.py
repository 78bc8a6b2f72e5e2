"""A log that is put in place of another, beside those who read it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path

from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from tests.support.memory.engines import Serve

TIMEOUT_S = 100.0


async def test_an_export_is_of_one_log_and_not_of_two(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_and_end("how does a mill work?")
    begun, goes_on = threading.Event(), threading.Event()

    def redact(log: bytes) -> bytes:
        begun.set()
        goes_on.wait(TIMEOUT_S)
        return log.replace(b"mill", b"something else")

    with closing(Disk(folder)) as disk:
        async with asyncio.timeout(TIMEOUT_S), open_files(disk) as engine, asyncio.TaskGroup() as group:
            redacting = group.create_task(engine.eraser.rewrite_chat(chat_id, redact))
            await asyncio.to_thread(begun.wait, TIMEOUT_S)
            # It has the length of the log of before, and would cut the one that comes.
            exporting = group.create_task(engine.chats.export(await engine.chats.load(chat_id)))
            await asyncio.wait([exporting], timeout=0.2)
            assert not exporting.done()
            goes_on.set()
            await redacting
            assert await exporting == (folder / f"{chat_id}.json").read_bytes()
            assert b"something else" in await exporting
