"""The facts of all users in one log file, one JSON object a line. Everything here blocks.

It is written as chats are: append, sync, and a tail cut by a crash is set aside.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.user_facts import Fact, decode_fact, encode_fact, make_fact_text
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from services.memory.storage.files.index import Index

_FILE = str(uuid.uuid5(uuid.UUID("6f0f7a3e-3a0b-4d0e-9d57-6f3b6d0c7f11"), ""))


class FactLog:
    def __init__(self, folder: Path) -> None:
        self._disk = Disk(folder)
        self._lock = Lock()
        self._known: dict[tuple[Identity, str], Fact] = {}
        self._end = 0
        self._read_file()

    def close(self) -> None:
        self._disk.close()

    def add_fact(self, owner: Identity, text: str, request_id: str) -> tuple[Fact, bool]:
        """Keep a fact, on disk when this returns; return it, and whether its request id is new."""
        with self._lock:
            if request_id and (known := self._known.get((owner, request_id))):
                return known, False
            return self._store_fact(Fact.create(owner, text, request_id)), True

    def import_all(self, facts: Iterable[Fact]) -> None:
        with self._lock:
            for fact in facts:
                if (fact.owner, fact.key) not in self._known:
                    self._store_fact(fact)

    def list_all(self) -> list[Fact]:
        with self._lock:
            return list(self._known.values())

    def _store_fact(self, fact: Fact) -> Fact:
        fact = msgspec.structs.replace(fact, n=len(self._known) + 1)
        data = encode_fact(fact)
        with disk_errors(_FILE):
            self._disk.append(_FILE, self._end, data)
        self._end += len(data)
        self._known[fact.owner, fact.key] = fact
        return fact

    def _read_file(self) -> None:
        if _FILE not in self._disk.list_logs():
            return
        data = self._disk.read_log(_FILE)
        for text in data.splitlines(keepends=True):
            try:
                fact = decode_fact(text)
            except msgspec.DecodeError:
                break
            if not text.endswith(b"\n"):
                break
            self._known[fact.owner, fact.key] = fact
            self._end += len(text)
        if self._end < len(data):
            self._disk.set_aside(_FILE, self._end, data[self._end :])


class FileUserFacts:
    def __init__(self, log: FactLog, index: Index) -> None:
        self._log = log
        self._index = index

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        fact, _ = await asyncio.to_thread(self._log.add_fact, owner, text, request_id)
        await self._index.query_file(lambda database: database.add_facts([make_fact_text(fact)]))
        return fact.uuid

    async def list_all(self) -> list[Fact]:
        return self._log.list_all()

    async def import_all(self, facts: Iterable[Fact]) -> None:
        await asyncio.to_thread(self._log.import_all, facts)
        await self.update_index()

    async def update_index(self) -> None:
        texts = [make_fact_text(fact) for fact in self._log.list_all()]
        await self._index.query_file(lambda database: database.replace_facts(texts))
