"""The facts of all users in one log file and in memory. Everything but FileUserFacts blocks.

It is written as chats are: append, sync, and a tail cut by a crash is set aside. A line is newer than those before it
with the same ids. Where a text is to leave, the file is written anew without it, whole or not at all.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from services.memory.storage.files.disk import Disk
from services.memory.storage.user_facts import (
    Fact,
    MakeChange,
    decode_facts,
    encode_fact,
    encode_facts,
)
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from services.memory.storage.files.disk_room import DiskRoom

_FILE = str(uuid.uuid5(uuid.UUID("6f0f7a3e-3a0b-4d0e-9d57-6f3b6d0c7f11"), ""))


class FactLog:
    def __init__(self, folder: Path, room: DiskRoom) -> None:
        self._disk = Disk(folder)
        self._room = room
        self._lock = Lock()
        self._disk.delete_unfinished()
        self._read_file()

    def close(self) -> None:
        self._disk.close()

    def list_visible(self, owner: Identity) -> list[Fact]:
        with self._lock:
            places = owner, Identity(owner.tenant, "")
            return sorted((fact for place in places for fact in self._facts[place].values()), key=_get_n)

    def list_all(self) -> list[Fact]:
        with self._lock:
            return self._list_all()

    def change(self, owner: Identity, make: MakeChange) -> Fact:
        """Make a change of what `owner` sees, on disk when this returns; return its fact."""
        with self._lock:
            if self._is_stale:
                self._recover()
            places = owner, Identity(owner.tenant, "")
            change = make([fact for place in places for fact in self._facts[place].values()])
            stored = self._store(change.changed)
            return stored.get(change.fact.uuid, change.fact)

    def import_all(self, facts: Iterable[Fact]) -> None:
        """Store facts as they are; known ones stay."""
        with self._lock:
            if self._is_stale:
                self._recover()
            known = {(fact.owner, fact.key) for fact in self._list_all()}
            for fact in facts:
                if (fact.owner, fact.key) not in known:
                    self._store([msgspec.structs.replace(fact, n=0)])
                    known.add((fact.owner, fact.key))

    def delete_all_of(self, owner: Identity) -> int:
        """Delete what a user has stored, also for the tenant, and return how many had a text."""
        with self._lock:
            if self._is_stale:
                self._recover()
            gone = [fact for fact in self._list_all() if fact.owner == owner]
            if not gone:
                return 0
            ids = {fact.uuid for fact in gone}
            data = b"".join(encode_fact(fact) for fact in self._list_all() if fact.uuid not in ids)
            self._is_stale = True
            with self._room.writing(_FILE):
                self._disk.rewrite_log(_FILE, data)
            for fact in gone:
                del self._facts[fact.place][fact.uuid]
            self._end, self._is_stale = len(data), False
            return sum(not fact.deleted_at for fact in gone)

    def _store(self, changed: Sequence[Fact]) -> dict[str, Fact]:
        facts: dict[str, Fact] = {}
        for fact in changed:
            n = fact.n or self._last_n + 1
            self._last_n = max(self._last_n, n)
            facts[fact.uuid] = msgspec.structs.replace(fact, n=n)
        if not facts:
            return facts
        before = self._facts
        loses_text = any(
            (old := before[fact.place].get(uuid)) is not None and (old.text, old.topic) != (fact.text, fact.topic)
            for uuid, fact in facts.items()
        )
        self._is_stale = True  # until the disk has it: what is there after an error is read again
        with self._room.writing(_FILE):
            if loses_text:
                rest = (fact for fact in self._list_all() if fact.uuid not in facts)
                data = b"".join(map(encode_fact, sorted((*rest, *facts.values()), key=_get_n)))
                self._disk.rewrite_log(_FILE, data)
                self._end = len(data)
            else:
                data = encode_facts(list(facts.values()))
                self._disk.append(_FILE, self._end, data)
                self._end += len(data)
        self._is_stale = False
        self._take(facts.values())
        return facts

    def _recover(self) -> None:
        with self._room.writing(_FILE):
            self._disk.sync_all()  # what is read and answered from now on must be durable
            self._read_file()

    def _read_file(self) -> None:
        self._facts: defaultdict[Identity, dict[str, Fact]] = defaultdict(dict)
        self._end = self._last_n = 0
        self._is_stale = True
        data = self._disk.read_log(_FILE) if _FILE in self._disk.list_logs() else b""
        for text in data.splitlines(keepends=True):
            try:
                facts = decode_facts(text)
            except msgspec.DecodeError:
                break
            if not text.endswith(b"\n"):
                break
            self._take(facts)
            self._end += len(text)
        if self._end < len(data):
            self._disk.set_aside(_FILE, self._end, data[self._end :])
        self._is_stale = False

    def _take(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._facts[fact.place][fact.uuid] = fact
            self._last_n = max(self._last_n, fact.n)

    def _list_all(self) -> list[Fact]:
        return sorted((fact for facts in self._facts.values() for fact in facts.values()), key=_get_n)


def _get_n(fact: Fact) -> int:
    return fact.n


class FileUserFacts:
    def __init__(self, log: FactLog) -> None:
        self._log = log

    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        return await asyncio.to_thread(self._log.list_visible, owner)

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        return await asyncio.to_thread(self._log.change, owner, make)

    async def list_all(self) -> list[Fact]:
        return await asyncio.to_thread(self._log.list_all)

    async def import_all(self, facts: Iterable[Fact]) -> None:
        await asyncio.to_thread(self._log.import_all, facts)
