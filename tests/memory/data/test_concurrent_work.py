"""Concurrent work that has read an erased user's words does not store them again if it ends after the erasure."""

import asyncio
import errno
import os
from pathlib import Path

import asyncpg
import pytest

from headrace.errors import NotFound
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.engines import Files, Kept, Tables
from tests.support.memory.people import ADA, BOB, ask, erase, find_marks, furnish, mark, read_bytes, share
from tests.support.memory.summarising import Compacted, Summariser, compact, serving_llm
from tests.support.memory.writing import Memory
from tests.support.postgresql import needs_postgres
from tests.support.s3_store import needs_s3
from tests.support.summaries import write_summary

ADAS_WORDS = mark(ADA, "shared")
BLOB = "0" * 64
WAIT_S = 60.0


def quote(request: object) -> str:
    return write_summary(f"ada said {ADAS_WORDS}." if ADAS_WORDS in str(request) else "They spoke.")


async def converse_with_ada(memory: Memory) -> tuple[str, str]:
    chat_id = (await furnish(memory, BOB))["chat"]
    await share(memory, BOB, chat_id, "user:ada")
    await ask(memory, ADA, ADAS_WORDS, chat_id)
    run_id = ""
    for number in range(8):
        _, run_id = await ask(memory, BOB, f"{number} " + "many words " * 400, chat_id)
    return chat_id, run_id


async def compact_as_bob(memory: Memory, chat_id: str, run_id: str) -> Compacted:
    with acting_as(BOB):
        return await compact(memory, chat_id, run_id, summary_only=True)


async def erase_meanwhile(memory: Memory, other: Memory, summariser: Summariser, chat_id: str, run_id: str) -> None:
    """Erase ada while a summary of her words is being written."""
    summariser.asked.clear()
    summariser.gate.clear()
    compacting = asyncio.create_task(compact_as_bob(memory, chat_id, run_id))
    async with asyncio.timeout(WAIT_S):
        await summariser.asked.wait()
    assert ADAS_WORDS in str(summariser.requests)
    assert (await erase(other, user="ada")).state == "done"
    summariser.gate.set()
    compacted = await compacting
    assert (compacted.kinds[-1], compacted.last.reason) == ("fail", "ALREADY_COMPACTED")


@pytest.mark.engines
async def test_a_summary_of_words_that_are_erased_meanwhile_is_discarded(kept: Kept) -> None:
    summariser = Summariser(quote)
    async with serving_llm(summariser) as (llm, _), kept.memory(llm=llm) as memory:
        chat_id, run_id = await converse_with_ada(memory)
        await erase_meanwhile(memory, memory, summariser, chat_id, run_id)
        assert ADAS_WORDS.encode() not in await kept.log(chat_id)
        assert b"compact_summary" not in await kept.log(chat_id)
        # Later summaries of what remains succeed.
        for _ in range(2):
            assert (await compact_as_bob(memory, chat_id, run_id)).kinds[-1] == "complete"
            for number in range(8):
                _, run_id = await ask(memory, BOB, f"{number} " + "more words " * 400, chat_id)
    async with kept.memory() as memory:
        assert ADAS_WORDS.encode() not in await kept.log(chat_id)


@needs_postgres
async def test_a_summary_is_discarded_if_another_service_erases_its_words_meanwhile(database_url: str) -> None:
    kept, summariser = Tables(database_url), Summariser(quote)
    async with (
        serving_llm(summariser) as (llm, _),
        kept.memory(llm=llm, tells=False) as memory,
        kept.memory(llm=llm, tells=False) as other_memory,
    ):
        chat_id, run_id = await converse_with_ada(memory)
        await erase_meanwhile(memory, other_memory, summariser, chat_id, run_id)
        assert ADAS_WORDS.encode() not in await kept.log(chat_id)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=needs_s3)])
def in_files(request: pytest.FixtureRequest, folder: Path) -> Files:
    """Chats in a folder, with their blobs in it or in a bucket."""
    return Files(folder, place=request.getfixturevalue("place") if request.param == "bucket" else None)


async def wait_for_reader(fifo: Path) -> int:
    """Return the write end of a FIFO once it has a reader, who waits until it is closed."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:  # nobody reads it yet
                    raise
                await asyncio.sleep(0.01)


async def begin_fork(memory: Memory, who: Identity, folder: Path, chat_id: str) -> tuple[asyncio.Task[str], int]:
    """Start a fork of the chat, which waits for one of its blobs until the descriptor is closed."""
    fifo = folder / "blobs" / chat_id / BLOB
    fifo.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(fifo)
    forking = asyncio.create_task(memory.acting_as(who).fork(chat_id))
    descriptor = await wait_for_reader(fifo)
    fifo.unlink()
    return forking, descriptor


@pytest.mark.engines
async def test_a_blob_named_in_no_line_is_erased_with_the_redacted_runs(memory: Memory) -> None:
    """The recording of a run in a shared chat is such a blob if the reply to PutBlob was lost."""
    chat_id = (await furnish(memory, BOB))["chat"]
    await share(memory, BOB, chat_id, "user:ada")
    await ask(memory, ADA, ADAS_WORDS, chat_id)
    with acting_as(BOB):
        named = await memory.put_blob(chat_id, mark(BOB, "named").encode())
        unnamed = await memory.put_blob(chat_id, ADAS_WORDS.encode())
    await ask(memory, BOB, f"look at {named}", chat_id)
    assert (await erase(memory, user="ada")).state == "done"
    with acting_as(BOB):
        assert (await memory.blob(chat_id, named)).data == mark(BOB, "named").encode()
        with pytest.raises(NotFound):
            await memory.blob(chat_id, unnamed)


async def test_a_fork_of_a_chat_that_is_erased_meanwhile_fails(in_files: Files) -> None:
    kept, folder = in_files, in_files.folder
    async with kept.memory() as memory:
        chat_id = (await furnish(memory, ADA))["chat"]
        await share(memory, ADA, chat_id, "user:bob")
        forking, descriptor = await begin_fork(memory, BOB, folder, chat_id)
        assert (await erase(memory, user="ada")).state == "done"
        os.close(descriptor)
        with pytest.raises(NotFound):
            await forking
        assert not find_marks(await read_bytes(kept), mark(ADA, "chat"), mark(ADA, "blob"))
    async with kept.memory() as memory:
        assert not (await memory.acting_as(BOB).chats()).chats


async def test_a_fork_is_completed_if_its_caller_leaves(in_files: Files) -> None:
    async with in_files.memory() as memory:
        chat_id = (await furnish(memory, ADA))["chat"]
        forking, descriptor = await begin_fork(memory, ADA, in_files.folder, chat_id)
        with acting_as(ADA):
            forking.cancel()
            await asyncio.wait([forking])
            assert len((await memory.chats()).chats) == 1  # the server has seen the cancel before this call
            os.close(descriptor)
            async with asyncio.timeout(WAIT_S):
                while len(chats := (await memory.chats()).chats) < 2:
                    await asyncio.sleep(0.01)
            [fork] = [chat.chat_id for chat in chats if chat.chat_id != chat_id]
        assert mark(ADA, "chat").encode() in await in_files.log(fork)


async def test_a_fork_of_a_chat_that_is_redacted_meanwhile_is_copied_again(in_files: Files) -> None:
    kept, folder = in_files, in_files.folder
    async with kept.memory() as memory:
        chat_id = (await furnish(memory, BOB))["chat"]
        await share(memory, BOB, chat_id, "user:ada")
        blob_id = await memory.acting_as(ADA).put_blob(chat_id, mark(ADA, "blob").encode())
        await ask(memory, ADA, f"{ADAS_WORDS} {blob_id}", chat_id)
        forking, descriptor = await begin_fork(memory, BOB, folder, chat_id)
        assert (await erase(memory, user="ada")).state == "done"
        os.close(descriptor)
        fork = await forking
        assert not find_marks(await read_bytes(kept), ADAS_WORDS, mark(ADA, "blob"))
        assert b"[erased]" in await kept.log(fork)
        assert len((await memory.acting_as(BOB).chats()).chats) == 2


HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END';
CREATE TRIGGER hold BEFORE INSERT ON chats FOR EACH ROW EXECUTE FUNCTION hold();
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"


@needs_postgres
async def test_a_fork_of_a_chat_that_another_service_erases_meanwhile_fails(database_url: str) -> None:
    kept = Tables(database_url)
    connection = await asyncpg.connect(database_url)
    try:
        async with kept.memory() as memory, kept.memory(tells=False) as other_memory:
            chat_id = (await furnish(memory, ADA))["chat"]
            await share(memory, ADA, chat_id, "user:bob")
            await connection.execute(HOLD)
            await connection.execute("SELECT pg_advisory_lock(42)")
            with acting_as(BOB):
                forking = asyncio.create_task(memory.fork(chat_id))
            async with asyncio.timeout(WAIT_S):
                while not await connection.fetchval(WAITING):
                    await asyncio.sleep(0.01)
            assert (await erase(other_memory, user="ada")).state == "done"
            await connection.execute("SELECT pg_advisory_unlock(42)")
            with pytest.raises(NotFound):
                await forking
            assert not (await memory.acting_as(BOB).chats()).chats
    finally:
        await connection.execute("DROP TRIGGER IF EXISTS hold ON chats; DROP FUNCTION IF EXISTS hold")
        await connection.close()
