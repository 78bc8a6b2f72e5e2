"""Follows docs/store-something-new.md: both engines store its new kind encrypted, erase it and archive it."""

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from services.memory.storage.files.data_keys import FileDataKeys
from services.memory.storage.files.disk_room import DiskRoom
from services.memory.storage.files.sqlite import SqliteSql
from services.memory.storage.postgres.connection.pool import Limits, open_database
from services.memory.storage.postgres.connection.statements import PostgresSql
from services.memory.storage.sql import Sql
from services.runtime.auth.identity import Identity
from tests.support.memory.engines import open_keys
from tests.support.postgresql import connected, needs_postgres

PAGE = (Path(__file__).parents[3] / "docs" / "store-something-new.md").read_text()

ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")


def find_block(form: str) -> str:
    found = re.search(rf"^```{form}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that the page describes."""
    module = ModuleType("notes")
    monkeypatch.setitem(sys.modules, "notes", module)  # msgspec resolves a struct's annotations there
    exec(compile(find_block("python"), "notes.py", "exec"), module.__dict__)
    return module


def edit(note: Any) -> Any:
    return replace(note, text="another")


async def check_kind(notes: Any, sql: Sql, folder: Path) -> None:
    keys = open_keys(FileDataKeys(folder / "keys"))
    store = notes.Notes(sql, keys)
    note = notes.Note("n1", "acme", "ada", 1, "a secret")
    assert await store.put(note)
    assert not await store.put(note), "there is one of this id"
    assert await store.put(notes.Note("n2", "acme", "bob", 1, "his"))
    assert await store.list_own(ADA) == [note] == await store.list_authored(ADA)
    [[stored]] = await store.fetch("data", "note_id = $1", "n1")
    assert b"secret" not in bytes(stored)
    changed = await store.change(note, edit)
    assert await store.find("n1") == changed
    assert not await store.put(note, note.version), "somebody else has changed it"
    assert await store.list_users("acme") == {"ada", "bob"}
    for note_id in await store.list_erasable("acme", "ada"):
        await store.erase(note_id)
    assert [found.note_id for found in await store.list_all()] == ["n2"]


async def test_the_documented_kind_works_in_sqlite(notes: Any, tmp_path: Path) -> None:
    room, tables = DiskRoom(tmp_path), notes.NOTES.list_tables()
    with closing(SqliteSql(tmp_path / "records.sqlite", room, tables, tmp_path / "older")) as sql:
        await check_kind(notes, sql, tmp_path)


@asynccontextmanager
async def having_table(database_url: str) -> AsyncGenerator[None]:
    async with connected(database_url) as connection:
        await connection.execute(find_block("sql"))
        try:
            yield
        finally:
            await connection.execute("DROP TABLE notes")


@needs_postgres
async def test_the_documented_kind_works_in_postgresql(notes: Any, tmp_path: Path, database_url: str) -> None:
    async with having_table(database_url), open_database(database_url, Limits(2, 5.0)) as database:
        await check_kind(notes, PostgresSql(database, lambda: None), tmp_path)
