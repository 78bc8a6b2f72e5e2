"""Tables are created and changed once, by the first service that starts."""

import asyncio
import os
from traceback import format_exception

import pytest

from benchmarks.postgresql import Server
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.memory.storage.postgres.migrations import LOCK, list_versions, migrate_tables
from services.runtime.ending import CannotServe
from tests.support.memory.admin_cli import run_program
from tests.support.memory.serving import memory_in
from tests.support.postgresql import connected, make_tables, until_waits

LIMITS = Limits(2, 10.0)

TITLES = next(version for version, statements in list_versions().items() if "titles" in statements.lower())


async def test_services_that_start_at_the_same_moment_create_the_tables_once(postgres: Server) -> None:
    url = postgres.new_database()

    async def start() -> list[str]:
        async with open_postgres(url, LIMITS) as engine:
            return await engine.index.list_chats()

    async with asyncio.timeout(300):
        assert await asyncio.gather(*(start() for _ in range(5))) == [[]] * 5
    async with connected(url) as connection:
        applied = await connection.fetch("SELECT version FROM headrace_version ORDER BY version")
    assert [row[0] for row in applied] == list(list_versions())


async def test_a_migration_may_take_longer_than_any_other_statement(postgres: Server) -> None:
    url = postgres.new_database()
    async with connected(url) as other, connected(url, command_timeout=0.2) as migrating:
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock($1)", LOCK)  # as another migrating service holds it
            migration = asyncio.create_task(migrate_tables(migrating))
            await until_waits(other, "advisory")
            await asyncio.sleep(0.5)  # long enough to end another statement
            assert not migration.done()
        assert await migration


async def test_writers_do_not_wait_long_for_a_migration_that_waits_for_a_table(postgres: Server) -> None:
    url = postgres.new_database()
    write = "UPDATE chats SET title = title WHERE false"
    async with connected(url) as writing, connected(url) as other, connected(url) as migrating:
        # The tables of version 16 refer to chats, so creating them waits for writers of chats.
        await make_tables(other, 15)
        async with writing.transaction():
            await writing.execute(write)
            migration = asyncio.create_task(migrate_tables(migrating))
            await until_waits(other, "relation")
            async with asyncio.timeout(100):
                await other.execute(write)
            assert not migration.done()
        assert await migration


async def test_a_migration_removes_samples_of_user_text_from_the_statistics(postgres: Server) -> None:
    url = postgres.new_database()
    sample_query = "SELECT 1 FROM pg_stats WHERE tablename = 'texts' AND strpos(most_common_vals::text, 'planted') > 0"
    write = "INSERT INTO texts (run_id, kind, text, folded, tenant, user_name) VALUES ('', 'fact', $1, $1, '', '')"
    async with connected(url) as connection:
        await make_tables(connection, 23)
        await connection.executemany(write, [("planted",)] * 3)
        await connection.execute("ANALYZE")
        assert await connection.fetch(sample_query)
        await connection.execute("TRUNCATE texts")
        assert await migrate_tables(connection)
        assert not await connection.fetch(sample_query)
        await connection.executemany(write, [("planted",)] * 3)
        await connection.execute("ANALYZE")
        assert not await connection.fetch(sample_query)
        assert await connection.fetchval("SELECT count(*) FROM pg_stats WHERE tablename = 'texts'")


@pytest.mark.parametrize("url", ["{new}", ""])
async def test_tables_are_created_before_services_start(postgres: Server, url: str) -> None:
    """The init container of memory's pods creates them like this."""
    database_url = url.format(new=postgres.new_database())
    env = os.environ | {"HEADRACE_DATABASE_URL": database_url}
    status, printed = await run_program("services.memory.migration", env=env)
    if not database_url:
        assert (status, "HEADRACE_DATABASE_URL" in printed) == (1, True)
        return
    assert status == 0, printed
    async with connected(database_url) as connection:
        assert await connection.fetchval("SELECT max(version) FROM headrace_version") == len(list_versions())


async def test_tables_of_a_later_version_are_not_changed(postgres: Server) -> None:
    url = postgres.new_database()
    async with memory_in(url) as memory:
        await memory.begin("hello")
    async with connected(url) as connection:
        await connection.execute("INSERT INTO headrace_version VALUES (1000000)")
    with pytest.raises(OSError, match="of a later version"):
        async with open_postgres(url, LIMITS):
            pass


async def test_chats_of_an_earlier_version_get_titles(postgres: Server) -> None:
    url = postgres.new_database()
    questions = ["Why does the   wheel of the old\nwater mill turn against the stream?", "x" * 70, "short"]
    async with memory_in(url) as memory:
        for question in questions:
            await memory.begin(question)
        titles = {chat.chat_id: chat.title for chat in (await memory.chats()).chats}
    assert len(titles) == len(questions)
    async with connected(url) as connection:
        await connection.execute(f"ALTER TABLE chats DROP COLUMN title; {list_versions()[TITLES]}")
        async with memory_in(url) as memory:
            assert {chat.chat_id: chat.title for chat in (await memory.chats()).chats} == titles
            await connection.execute("UPDATE chats SET title = ''")  # as services of version 6 write new ones
            assert all(chat.title == chat.chat_name for chat in (await memory.chats()).chats)


@pytest.mark.parametrize(
    "url", ["postgresql://headrace@/nowhere?host={folder}", "postgresql://nobody@/postgres?host={folder}"]
)
async def test_a_database_that_refuses_connections_is_a_clear_error_at_start(postgres: Server, url: str) -> None:
    with pytest.raises(OSError, match="the database refuses"):
        async with open_postgres(url.format(folder=postgres.folder), LIMITS):
            pass


async def test_a_user_who_may_not_create_tables_is_refused_at_start(postgres: Server) -> None:
    """Since PostgreSQL 15 only a database's owner may create tables in the schema public."""
    url = postgres.new_database()
    async with connected(url) as connection:
        await connection.execute("CREATE ROLE reader LOGIN; REVOKE CREATE ON SCHEMA public FROM public")
    with pytest.raises(CannotServe, match="refuses: permission denied for schema public; its user needs the right"):
        async with open_postgres(url.replace("headrace@", "reader@"), LIMITS):
            pass


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://ada:sesame#1@db/chats", "write characters such as @"),
        ("postgresql://ada:sesame/1@db/chats", "write characters such as @"),
        ("postgresql://ada:sesame[1@db/chats", "write characters such as @"),
        ("postgresql://ada:sesame?1@db/chats", "write characters such as @"),
        ("postgresql://ada:sesame@db:five/chats", "write characters such as @"),
        ("postgresql://ada:sesame@db/chats?sslmode=requird", "`sslmode` parameter must be one of"),
    ],
)
async def test_an_address_that_is_none_is_refused_at_once_without_the_password(url: str, problem: str) -> None:
    with pytest.raises(CannotServe, match=problem) as caught:
        async with open_postgres(url, LIMITS):
            pass
    assert str(caught.value).startswith("HEADRACE_DATABASE_URL: ")
    assert "sesame" not in "".join(format_exception(caught.value))


async def test_a_database_that_cannot_store_every_character_is_rejected_at_start(postgres: Server) -> None:
    url = postgres.url("latin")
    async with connected(postgres.url()) as connection:
        await connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(CannotServe, match="encoding LATIN1: create one with ENCODING 'UTF8'"):
        async with memory_in(url):
            pass
