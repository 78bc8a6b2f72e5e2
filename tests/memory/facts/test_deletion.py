"""A deleted fact is in no file, index, table or dump, in no backup made later, and in no line of the logs.

Traces and the whole suite are checked in tests/e2e/test_trace.py.
"""

import logging
import shutil
from pathlib import Path

import pytest

from tests.support.memory.engines import Serve
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import Memory
from tests.support.postgresql import connected, needs_postgres
from tests.support.programs import run_to_end

SECRET = "mellifluous quokka 7261"
PARTS = [SECRET.encode(), b"mellifluous", b"quokka"]


async def remember_and_delete(memory: Memory) -> None:
    """Put the secret into a fact, the former text of one, and an ended one; delete them all."""
    first = await memory.remember(f"the word is {SECRET}", "r1", topic=SECRET)
    edited = await memory.remember(f"edited {SECRET}")
    ended = await memory.remember(f"ended {SECRET}")
    await memory.remember("stays", replaces=[ended])
    assert await memory.recall(SECRET)
    assert await memory.search(SECRET)
    await memory.update_fact(edited, text="harmless")
    for fact_id in (first, ended):
        await memory.delete_fact(fact_id)


def find_parts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and any(part in path.read_bytes() for part in PARTS)]


@pytest.mark.parametrize("restart", [False, True])
async def test_no_file_contains_a_deleted_fact(
    serve: Serve, folder: Path, tmp_path: Path, restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve() as memory:
        await memory.begin_and_end()
        await remember_and_delete(memory)
        if not restart:
            assert find_parts(folder) == []
            shutil.copytree(folder, tmp_path / "backup")
            assert await memory.recall(SECRET) == await memory.search(SECRET) == []
    if restart:
        async with serve() as memory:
            assert sorted(fact.text for fact in await memory.list_facts()) == ["harmless", "stays"]
    assert find_parts(tmp_path) == []
    assert "quokka" not in caplog.text


async def test_an_index_of_an_older_version_that_contains_facts_is_rebuilt(serve: Serve, folder: Path) -> None:
    import sqlite3

    async with serve() as memory:
        await memory.begin_and_end("hello")
        fact_id = await memory.remember(SECRET)
    database = sqlite3.connect(folder / "index.sqlite")
    database.execute("CREATE TABLE facts AS SELECT ? AS text", (SECRET,))
    database.execute("PRAGMA user_version=2")
    database.commit()
    database.close()
    async with serve() as memory:
        await memory.delete_fact(fact_id)
        assert len(await memory.search("hello")) == 1
        assert find_parts(folder) == []


@needs_postgres
async def test_no_table_or_dump_contains_a_deleted_fact(database_url: str) -> None:
    async with memory_in(database_url) as memory:
        await remember_and_delete(memory)
        async with connected(database_url) as connection:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            rows = [
                row[0]
                for table in tables
                for row in await connection.fetch(f'SELECT row_to_json(row)::text FROM "{table[0]}" AS row')
            ]
    assert any("harmless" in row for row in rows)
    assert not any("quokka" in row for row in rows)
    if dump := shutil.which("pg_dump"):
        _, out, _ = await run_to_end(dump, database_url)
        assert b"quokka" not in out
