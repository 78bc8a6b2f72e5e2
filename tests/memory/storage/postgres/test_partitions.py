"""Tables are partitioned while services write to them, and nothing is lost if the command is killed at any time."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from benchmarks.postgresql import Server
from services.memory.storage.postgres.migrations.partitions import PARTS, TABLES
from services.runtime.auth.identity import acting_as
from tests.support.memory.filling import fill
from tests.support.memory.questions import OWNER, write_sources
from tests.support.memory.serving import memory_in
from tests.support.memory.spend import charge, said, total
from tests.support.memory.writing import Memory, run_line
from tests.support.postgresql import connected, make_partitioned
from tests.support.programs import starting

pytestmark = pytest.mark.real_time

NAMES = [of.table for of in TABLES]

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, attstattarget, attstorage, attcollation FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = $1"
ATTACHED = """
SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal
UNION SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'f' ORDER BY 1
"""
PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass"

DIGEST = "SELECT md5(string_agg(row, '' ORDER BY row)) FROM (SELECT md5(t::text) AS row FROM {} AS t {}) AS rows"

LOST = """
SELECT count(*) FROM chats
WHERE (SELECT count(*) FROM lines WHERE chat = id) <> (SELECT coalesce(max(n), -1) FROM lines WHERE chat = id)
    OR NOT EXISTS (SELECT FROM texts WHERE chat = id)
"""
LEFT = """
SELECT (SELECT count(*) FROM lines WHERE chat NOT IN (SELECT id FROM chats))
    + (SELECT count(*) FROM texts WHERE chat NOT IN (SELECT id FROM chats))
    + (SELECT count(*) FROM spend WHERE chat > 0 AND chat NOT IN (SELECT id FROM chats))
    + (SELECT count(*) FROM blobs WHERE chat_id NOT IN (SELECT chat_id FROM chats))
"""
SPENT = (
    "SELECT (SELECT sum(cost_nano_usd) FROM spend) = (SELECT sum(cost_nano_usd) FROM spend_sums WHERE scope = 'user')"
)


@asynccontextmanager
async def commanding(url: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run the command, and kill it if it has not ended."""
    command = (sys.executable, "-m", "headrace.cli", "database", "partition")
    env = {"PATH": os.environ["PATH"], "HEADRACE_DATABASE_URL": url}
    async with starting(*command, env=env, stdout=PIPE) as process:
        yield process


async def run_command(url: str) -> list[str]:
    async with commanding(url) as process:
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().splitlines()


async def kill_in_the_middle(url: str, last: int | None) -> None:
    """Kill the command once it has copied some lines, while it waits for the last line of chat `last` and earlier
    ones."""
    async with connected(url) as locking, locking.transaction(), connected(url) as connection:
        await locking.execute(
            "SELECT FROM lines WHERE ctid = (SELECT max(ctid) FROM lines WHERE chat <= $1) FOR UPDATE", last
        )
        async with commanding(url), asyncio.timeout(100):
            while not await connection.fetchval("SELECT to_regclass('lines_twin')"):
                await asyncio.sleep(0.01)
            while not await connection.fetchval("SELECT max(next_block) FROM headrace_copies"):
                await asyncio.sleep(0.01)


class Writers:
    """Writers of chats that are charged and in part deleted; none of their calls may fail."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._is_over = False
        self.kept: list[str] = []
        self.deleted: list[str] = []

    async def write(self) -> None:
        while not self._is_over:
            chat_id, run_id = await self._memory.begin("Does the wheel turn?")
            await self._memory.append(chat_id, run_id, said(charge("one", 1)), said(charge("one", 1)), run_line())
            await self._memory.call("UpdateChat", chat_id=chat_id, title="Wheels")
            await self._memory.put_blob(chat_id, chat_id.encode())
            if len(self.kept) > 2 * len(self.deleted):
                await self._memory.delete(chat_id)
                self.deleted.append(chat_id)
            else:
                self.kept.append(chat_id)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(self.write()) for _ in range(3)]
        yield
        assert len(self.kept) > 10
        assert self.deleted
        self._is_over = True
        await asyncio.gather(*tasks)


async def describe(connection: asyncpg.Connection, table: str, query: str = COLUMNS) -> list[tuple[object, ...]]:
    return [*map(tuple, await connection.fetch(query, table))]


async def test_tables_are_partitioned_while_services_write_even_if_the_command_is_killed(postgres: Server) -> None:
    url = postgres.new_database()
    async with memory_in(url) as memory, connected(url) as connection:
        await write_sources(memory)
        await fill(connection, 1_000, 2)
        described = {name: await describe(connection, name) for name in NAMES}
        attached = {name: await describe(connection, name, ATTACHED) for name in NAMES}
        last = await connection.fetchval("SELECT max(id) FROM chats")
        filled = [DIGEST.format(name, f"WHERE chat BETWEEN 1 AND {last}") for name in ("lines", "texts", "spend")]
        digests = [await connection.fetchval(query) for query in filled]
        writers = Writers(memory)
        with acting_as(OWNER):
            spent = await total(memory)
            async with writers.writing():
                await kill_in_the_middle(url, last)
                assert not await connection.fetch(PARTITIONS, "lines")
                assert await run_command(url) == [f"{name}: partitioned" for name in NAMES]
            assert await total(memory) == spent + 2 * len(writers.kept + writers.deleted)
        assert await run_command(url) == [f"{name}: is partitioned" for name in NAMES]
        assert [await connection.fetchval(query) for query in filled] == digests
        assert {name: await describe(connection, name, ATTACHED) for name in NAMES} == attached
        assert [await connection.fetchval(query) for query in (LOST, LEFT)] == [0, 0]
        assert await connection.fetchval(SPENT)
        for name in NAMES:
            parts = [row[0] for row in await connection.fetch(PARTITIONS, name)]
            assert len(parts) == PARTS
            for table in (name, *parts):
                assert await describe(connection, table) == described[name]
        blobs = await connection.fetch("SELECT chat_id, blob_id FROM blobs")
        assert {row[0] for row in blobs} == {*writers.kept}
    async with memory_in(url) as memory:  # nothing is cached yet
        with acting_as(OWNER):
            for chat_id, blob_id in blobs:
                assert (await memory.blob(chat_id, blob_id)).data == chat_id.encode()
            assert await memory.search("wheel")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE lines ADD COLUMN later bigint NOT NULL DEFAULT 7",
        pytest.param("VACUUM FULL lines", marks=pytest.mark.nightly),
    ],
)
async def test_a_copy_is_restarted_if_its_table_is_altered_or_rewritten(postgres: Server, change: str) -> None:
    url = postgres.new_database()
    async with memory_in(url) as memory, connected(url) as connection:
        await write_sources(memory)
        await fill(connection, 400, 2)
        await kill_in_the_middle(url, await connection.fetchval("SELECT max(id) FROM chats"))
        await connection.execute(change)
        digest = DIGEST.format("lines", "")
        before = await connection.fetchval(digest)
        assert await run_command(url) == [f"{name}: partitioned" for name in NAMES]
        assert await connection.fetchval(digest) == before


async def test_an_empty_database_is_partitioned_with_the_same_indexes(postgres: Server) -> None:
    """The only exception is an index that the key of texts contains."""
    whole, parted = postgres.new_database(), postgres.new_database()
    await make_partitioned(parted)
    async with memory_in(whole), connected(whole) as connection, connected(parted) as parted_connection:
        for name in NAMES:
            indexes = {row[0] for row in await connection.fetch(INDEXES, name)} - {"texts_of_user"}
            assert {row[0] for row in await parted_connection.fetch(INDEXES, name)} >= indexes - {"facts"}
