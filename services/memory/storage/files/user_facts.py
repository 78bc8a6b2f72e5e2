"""The facts of all users in one log file and in memory. Everything but FileUserFacts blocks.

A line is encrypted whole. One whose key cannot be had stays as it is, and its tenant is told so; one that is not what
was written is left out, and stays too. The file is written as chats are: append, sync, and a tail cut by a crash is set
aside. A line is newer than those before it with the same ids. Where a text is to leave, the file is written anew
without it, whole or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import structlog

from headrace.errors import HeadraceError, KeyUnavailable, Overloaded
from services.memory.encryption import envelope
from services.memory.encryption.keyring import NO_KEYS, Keyring, is_of_tenant
from services.memory.storage.encrypted.records import decrypt_record, encrypt_record, is_current_record
from services.memory.storage.files.disk import Disk
from services.memory.storage.records.user_facts import (
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


FACTS = "facts"
"""Kind of the lines, as which they are encrypted."""

log = structlog.get_logger()


class FactLog:
    def __init__(self, folder: Path, room: DiskRoom, keys: Keyring = NO_KEYS) -> None:
        self._disk = Disk(folder)
        self._keys = keys
        self._room = room
        self._lock = Lock()
        self._read_file()

    def close(self) -> None:
        self._disk.close()

    def list_visible(self, owner: Identity) -> list[Fact]:
        with self._lock:
            self._check_closed(owner.tenant)
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
            self._check_closed(owner.tenant)
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

    def list_closed(self, tenant: str) -> list[str]:
        """Name the tenant's lines that cannot be read."""
        with self._lock:
            with suppress(KeyUnavailable):
                self._check_closed(tenant)
            unread = (*self._closed, *self._damaged)
            return [_name_line(line) for line in unread if _is_line_of_key(line, tenant)]

    def delete_closed(self, names: Collection[str]) -> None:
        """Delete lines that cannot be read."""
        with self._lock:
            if self._is_stale:
                self._recover()
            closed, damaged = (
                [line for line in lines if _name_line(line) not in names] for lines in (self._closed, self._damaged)
            )
            self._is_stale = True
            with self._room.writing(_FILE):
                self._write_all(self._list_all(), (*closed, *damaged))
            self._closed, self._damaged = closed, damaged
            self._is_stale = False

    def delete_all_of(self, owner: Identity) -> int:
        """Delete what a user has stored, also for the tenant, and return how many had a text; lines that cannot be
        read stay."""
        with self._lock:
            if self._is_stale:
                self._recover()
            with suppress(KeyUnavailable):
                self._check_closed(owner.tenant)
            gone = [fact for fact in self._list_all() if fact.owner == owner]
            if not gone:
                return 0
            self._keys.prepare_now(owner.tenant)  # or its other lines would stay, and these with them
            ids = {fact.uuid for fact in gone}
            rest = [fact for fact in self._list_all() if fact.uuid not in ids]
            self._is_stale = True
            with self._room.writing(_FILE):
                self._write_all(rest)
            for fact in gone:
                del self._facts[fact.place][fact.uuid]
            self._is_stale = False
            return sum(not fact.deleted_at for fact in gone)

    def scrub(self) -> None:
        """Write the file anew without what nobody can read, and without the end that a crash has cut."""
        with self._lock:
            if self._is_stale:
                self._recover()
            if not (self._has_unreadable or _FILE in self._disk.list_set_aside()):
                return
            self._is_stale = True
            with self._room.writing(_FILE):
                self._write_all(self._list_all())
            self._has_unreadable = self._is_stale = False

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
                self._write_all([*(fact for fact in self._list_all() if fact.uuid not in facts), *facts.values()])
            else:
                changed = list(facts.values())
                data = encrypt_record(FACTS, "", encode_facts(changed), self._keys, changed[0].owner.tenant)
                self._disk.append(_FILE, self._end, data)
                self._end += len(data)
        self._is_stale = False
        self._take(facts.values())
        return facts

    def list_tenants(self) -> set[str]:
        """List the tenants of whom there are facts."""
        with self._lock:
            return {fact.owner.tenant for fact in self._list_all()}

    def rewrite(self, unready: Collection[str] = ()) -> bool:
        """Write all facts as they would be written now, if they are not so; return whether they were. Tenants whose
        newest keys cannot be had are no reason."""
        with self._lock:
            if self._is_stale:
                self._recover()
            if self._is_current_but_for(unready):
                return False
            self._is_stale = True
            with self._room.writing(_FILE):
                self._write_all(self._list_all())
            self._is_stale = False
            return True

    def _is_current_but_for(self, unready: Collection[str]) -> bool:
        unread = {*self._closed, *self._damaged}
        for line in self._read_lines():
            tenant = self._find_tenant(line)
            if line not in unread and tenant not in unready and not is_current_record(line, self._keys, tenant):
                return False
        return True

    def _find_tenant(self, line: bytes) -> str:
        key_id = envelope.find_key_id(line)
        return (self._keys.find_tenant(key_id) or "") if key_id is not None else ""

    def _write_all(self, facts: Iterable[Fact], unread: Iterable[bytes] | None = None) -> None:
        """Write the file anew, with all lines that cannot be read or with those of `unread`."""
        by_tenant: defaultdict[str, list[Fact]] = defaultdict(list)
        for fact in facts:
            by_tenant[fact.owner.tenant].append(fact)
        lines = [line for tenant, own in by_tenant.items() for line in self._encode_all(tenant, own)]
        data = b"".join([*((*self._closed, *self._damaged) if unread is None else unread), *lines])
        self._disk.rewrite_log(_FILE, data)
        self._end = len(data)

    def _encode_all(self, tenant: str, facts: Iterable[Fact]) -> list[bytes]:
        """Encode a tenant's facts; where its key cannot be had, its lines stay, as others' facts are to leave the
        file."""
        try:
            self._keys.prepare_now(tenant)
        except HeadraceError:
            return [line for line in self._read_lines() if self._is_line_of(tenant, line)]
        return [encrypt_record(FACTS, "", encode_fact(fact), self._keys, tenant) for fact in sorted(facts, key=_get_n)]

    def _read_lines(self) -> list[bytes]:
        return self._disk.read_log(_FILE).splitlines(keepends=True) if _FILE in self._disk.list_logs() else []

    def _is_line_of(self, tenant: str, line: bytes) -> bool:
        if line in self._closed or line in self._damaged:
            return False
        return any(fact.owner.tenant == tenant for fact in decode_facts(decrypt_record(FACTS, "", line, self._keys)))

    def _check_closed(self, tenant: str) -> None:
        """Raise KeyUnavailable where facts of the tenant cannot be read, or read them if they can be by now."""
        closed = [line for line in self._closed if _is_line_of_key(line, tenant)]
        for line in closed:
            decrypt_record(FACTS, "", line, self._keys)
        if closed:
            self._read_file()

    def _recover(self) -> None:
        with self._room.writing(_FILE):
            self._disk.sync_all()  # what is read and answered from now on must be durable
            self._read_file()

    def _read_file(self) -> None:
        self._facts: defaultdict[Identity, dict[str, Fact]] = defaultdict(dict)
        self._closed: list[bytes] = []
        self._damaged: list[bytes] = []
        """Lines whose keys cannot be had, and that are not what was encrypted, which stay in the file."""
        self._has_unreadable = False
        """Whether there are lines that say nothing, and leave the file with the next text that does."""
        self._end = self._last_n = 0
        self._is_stale = True
        data = self._disk.read_log(_FILE) if _FILE in self._disk.list_logs() else b""
        for text in data.splitlines(keepends=True):
            if not text.endswith(b"\n"):
                break
            try:
                self._take(decode_facts(decrypt_record(FACTS, "", text, self._keys)))
            except (KeyUnavailable, Overloaded) as error:
                self._closed.append(text)
                log.error("facts cannot be read", error=error.message)
            except envelope.WrongCiphertext:
                self._damaged.append(text)
                log.error("facts damaged", byte=self._end)
            except ValueError:  # no JSON, or no text
                if self._end + len(text) == len(data):
                    break
                self._has_unreadable = True  # and nobody can say whose it is
                log.error("facts damaged", byte=self._end)
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


def _is_line_of_key(line: bytes, tenant: str) -> bool:
    return is_of_tenant(envelope.find_key_id(line) or b"", tenant)


def _name_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _get_n(fact: Fact) -> int:
    return fact.n


class FileUserFacts:
    def __init__(self, log: FactLog, keys: Keyring = NO_KEYS) -> None:
        self._log = log
        self._keys = keys

    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        await self._keys.open_tenant(owner.tenant)
        return await asyncio.to_thread(self._log.list_visible, owner)

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        await self._keys.prepare(owner.tenant)
        return await asyncio.to_thread(self._log.change, owner, make)

    async def list_all(self) -> list[Fact]:
        return await asyncio.to_thread(self._log.list_all)

    async def import_all(self, facts: Iterable[Fact]) -> None:
        facts = list(facts)
        for tenant in {fact.owner.tenant for fact in facts}:
            await self._keys.prepare(tenant)
        await asyncio.to_thread(self._log.import_all, facts)
