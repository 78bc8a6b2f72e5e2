"""Reads stored chats and prints any data that differs from what was written."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, KeyUnavailable, LogDamaged, Overloaded
from services.memory.importing.v3 import convert_older_log
from services.memory.log.recovery import LogReport, verify_log
from services.memory.storage.files.blobs import BlobFolder
from services.memory.storage.files.disk import list_log_names, read_log_file

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.engine import Engine
    from services.memory.storage.s3.bucket import Bucket


@dataclass(slots=True)
class _Totals:
    chats: int = 0
    lines: int = 0
    unchecked: int = 0
    unsealed: int = 0
    damaged: int = 0

    def add_chat(self, chat_id: str, report: LogReport, damaged_blobs: Iterable[str] = ()) -> None:
        problems = report.problems + [
            f"blob {blob_id}: its content is not the one of its name" for blob_id in damaged_blobs
        ]
        for problem in problems:
            print_line(f"{chat_id}: {problem}")
        if report.torn_bytes:
            print_line(f"{chat_id}: the last {report.torn_bytes} bytes are of an append that was never acknowledged")
        self.chats += 1
        self.lines += report.lines
        self.unchecked += report.unchecked
        self.unsealed += report.unsealed
        self.damaged += bool(problems)

    def print_summary(self) -> bool:
        """Print the totals; return whether nothing is damaged."""
        unchecked = f", {self.unchecked} of them without a checksum" if self.unchecked else ""
        unsealed = f", {self.unsealed} of them not sealed yet" if self.unsealed else ""
        print_line(f"{self.chats} chats, {self.lines} lines{unchecked}{unsealed}: {self.damaged or 'none'} damaged")
        return not self.damaged


async def verify_folder(folder: Path, chat_ids: Sequence[str], keys: Keyring, bucket: Bucket | None) -> bool:
    """Verify the logs and blobs of a folder, which a service may own; return whether none is damaged."""
    totals, blobs = _Totals(), BlobFolder(folder / "blobs", keys)
    for chat_id in chat_ids or list_log_names(folder):
        try:
            report = _verify_file(read_log_file(folder, chat_id), chat_id, keys)
            damaged = blobs.list_damaged(chat_id)
            if bucket is not None:
                # Imported only here: most stores do not need the HTTP client.
                from services.memory.storage.s3.blobs import list_damaged

                damaged += await list_damaged(bucket, chat_id, keys)
            totals.add_chat(chat_id, report, damaged)
        except (OSError, HeadraceError) as error:
            totals.add_chat(chat_id, LogReport(problems=[str(error)]))
    return totals.print_summary()


def _verify_file(data: bytes, chat_id: str, keys: Keyring) -> LogReport:
    report = verify_log(data, chat_id, keys)
    if report.lines or not (older := convert_older_log(chat_id, data)):
        return report
    print_line(f"{chat_id}: a log of Chat Memory V3, which memory converts when it first reads it")
    problems = [f"line {number}: is no JSON object, and will be left out" for number in older.unreadable]
    return LogReport(older.lines, unchecked=older.lines, problems=problems)


async def verify_database(engine: Engine, chat_ids: Sequence[str]) -> bool:
    """Verify the chats of a database and their blobs; return whether none is damaged."""
    totals = _Totals()
    for chat_id in chat_ids or await engine.index.list_chats():
        try:
            log = await engine.chats.export(await engine.chats.load(chat_id), as_stored=True)
            report = await asyncio.to_thread(verify_log, log, chat_id, engine.rewriting.keys)
            damaged = await _list_damaged(engine, chat_id)
            totals.add_chat(chat_id, report, damaged)
        except (KeyUnavailable, LogDamaged, Overloaded) as error:
            totals.add_chat(chat_id, LogReport(problems=[error.message]))
    return totals.print_summary()


async def _list_damaged(engine: Engine, chat_id: str) -> list[str]:
    blob_ids = await engine.blobs.list_ids(chat_id)
    lost = [it for it in blob_ids if await engine.blobs.load(chat_id, it) is None]
    if not lost:
        return []
    there = await engine.blobs.list_ids(chat_id)  # some may have been deleted in the meantime
    return [it for it in lost if it in there]


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
