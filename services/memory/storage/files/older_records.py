"""Records from before records.sqlite, when each was a file, or a line of one. They are imported once.

Imported files are kept in `OLDER` until the next release. To go back to the previous version, move them back to their
place; they are then imported again. A record that cannot be read stays in place, and is retried at each start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from headrace.errors import HeadraceError
from services.memory.encryption.envelope import WrongCiphertext
from services.memory.storage.encrypted.records import decrypt_record
from services.memory.storage.records.agent_versions import INSERT as INSERT_VERSION
from services.memory.storage.records.agent_versions import AgentVersion
from services.memory.storage.records.agents import AGENTS
from services.memory.storage.records.erasures import ERASURES, HOLDS
from services.memory.storage.records.keys import KEYS
from services.memory.storage.records.schedules import SCHEDULES
from services.memory.storage.records.user_facts import Fact, decode_facts, make_import
from services.runtime.files.disk import make_folder, sync_folder, write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.sqlite import SqliteSql
    from services.memory.storage.records.kind import Kind

OLDER = "older-records"

_KINDS: dict[str, Kind[Any]] = {
    "schedules": SCHEDULES,
    "keys": KEYS,
    "agents/current": AGENTS,
    "erasures": ERASURES,
    "holds": HOLDS,
}
"""By folder; a record is the file <id>.json."""

_UNREADABLE = (HeadraceError, WrongCiphertext, ValueError, OSError)

log = structlog.get_logger()


def import_older(folder: Path, records: SqliteSql, keys: Keyring) -> None:
    """Import the records in `folder`; blocks. Raises OSError, Overloaded."""
    for name, kind in _KINDS.items():
        if (folder / name).is_dir():
            _import_kind(folder, name, kind, records, keys)
    if (folder / "agents/versions").is_dir():
        _import_versions(folder, records)
    for path in sorted((folder / "facts").glob("*.json")):
        _import_facts(folder, path, records, keys)


def _import_kind(folder: Path, name: str, kind: Kind[Any], records: SqliteSql, keys: Keyring) -> None:
    found: list[tuple[Path, Any, bytes]] = []
    for path in sorted((folder / name).glob("*.json")):
        try:
            stored = path.read_bytes()
            plain = decrypt_record(kind.name, path.stem, stored, keys)
            found.append((path, msgspec.json.decode(plain, type=kind.struct), stored))
        except _UNREADABLE as error:
            log.error(f"older {kind.name} cannot be read", file=str(path), error=str(error))
    if kind.counter:
        found.sort(key=lambda each: each[1].revision)
        # Those who read changes know revisions up to the last one.
        last = found[-1][1].revision if found else 0
        records.run_now((f"UPDATE {kind.counter} SET last = max(last, $1)", (last,)))
    for _, record, stored in found:
        values = (*(get(record) for get in kind.columns.values()), record.version, stored)
        delete = (f"DELETE FROM {kind.table} WHERE {kind.key} = $1", values[:1])
        records.run_now(delete, *kind.count_changes(), kind.make_insert(values))
    _set_aside(folder, name, [path for path, *_ in found])


def _import_versions(folder: Path, records: SqliteSql) -> None:
    imported: list[Path] = []
    for path in sorted((folder / "agents/versions").iterdir()):
        try:
            line, _, definition = path.read_bytes().partition(b"\n")
            version = msgspec.json.decode(line, type=AgentVersion)
        except _UNREADABLE as error:
            log.error("older agent version cannot be read", file=str(path), error=str(error))
            continue
        records.run_now((f"{INSERT_VERSION} ON CONFLICT DO NOTHING", (*msgspec.structs.astuple(version), definition)))
        imported.append(path)
    _set_aside(folder, "agents/versions", imported)


def _import_facts(folder: Path, path: Path, records: SqliteSql, keys: Keyring) -> None:
    facts: dict[str, Fact] = {}
    unread: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            found = list(decode_facts(decrypt_record("facts", "", line, keys)))
            for fact in found:
                keys.prepare_now(fact.owner.tenant)
            facts |= {fact.uuid: fact for fact in found}
        except _UNREADABLE as error:
            unread.append(line)
            log.error("older facts cannot be read", file=str(path), error=str(error))
    in_order = sorted(facts.values(), key=lambda fact: fact.n)
    deletes = [("DELETE FROM facts WHERE fact_id = $1", (fact.uuid,)) for fact in in_order]
    records.run_now(*deletes, *(make_import(fact, keys) for fact in in_order))
    _set_aside(folder, "facts", [path])
    if unread:
        write_whole(path, b"".join(unread))


def _set_aside(folder: Path, name: str, paths: list[Path]) -> None:
    """Move imported files, durably, so that after a power failure they do not overwrite later changes."""
    if not paths:
        return
    aside = folder / OLDER / name
    make_folder(aside)
    for path in paths:
        os.replace(path, aside / path.name)
    sync_folder(aside)
    sync_folder(folder / name)
