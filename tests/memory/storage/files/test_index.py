"""The index of all chats: the list, unfinished runs and deletion, before and after a restart; and how it is made from
many logs: in portions, stopped and resumed.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ChatBusy, InvalidRequest, NotFound, Overloaded
from headrace.v1 import agent_pb2, memory_pb2
from services.memory.log.chat_info import RunInfo
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.disk_room import DiskRoom
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing import index_recovery
from services.memory.storage.files.indexing.database import IndexDatabase
from services.memory.storage.files.indexing.index import Index
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME, open_index
from services.memory.storage.index_rows import ChatEntry, IndexChange
from services.memory.storage.spend import SpendKey, SpendQuery, SpendSum
from tests.support.memory.admin_cli import copies
from tests.support.memory.engines import Serve
from tests.support.memory.log_editing import edit_log
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, event_line, events, new_id, query_line, read_pages, run_line, step_line

pytestmark = pytest.mark.engines


@pytest.mark.engines("postgres")
async def test_chats_are_listed_last_changed_first_page_by_page(serve: Serve) -> None:
    async with serve() as memory:
        chats = [await memory.begin(f"chat {index}", agent_key=f"agent {index}") for index in range(5)]
        await asyncio.sleep(0.002)
        await memory.append(*chats[1], step_line(content("a")))
        listed = list((await memory.chats()).chats)
    assert listed[0].chat_id == chats[1][0]
    assert listed[0].updated_at > listed[0].created_at
    assert (listed[0].chat_name, listed[0].first_agent_key) == ("chat 1", "agent 1")
    assert [chat.updated_at for chat in listed] == sorted((chat.updated_at for chat in listed), reverse=True)
    async with serve() as memory:
        pages = await read_pages(memory, "ListChats", "chats", 2)
    assert [chat for page in pages for chat in page] == listed


@pytest.mark.parametrize("fields", [{"page_size": -1}, {"page_size": 201}, {"page_token": "x"}, {"page_token": "1."}])
async def test_an_invalid_page_size_or_token_is_rejected(memory: Memory, fields: dict[str, int | str]) -> None:
    with pytest.raises(InvalidRequest):
        await memory.chats(**fields)


async def test_unfinished_runs_are_listed_with_the_last_seq_and_generation(serve: Serve) -> None:
    async with serve() as memory:
        ended = await memory.begin()
        await memory.append(*ended, run_line())
        waiting_chat, waiting = await memory.begin("a")
        _, second = await memory.begin("b", waiting_chat)
        await asyncio.sleep(0.002)
        running_chat, running_id = await memory.begin("c", agent_key="planner")
        covered = memory_pb2.EventRange(first_seq=4, last_seq=11)
        await memory.append(running_chat, running_id, step_line(content("x", events=events(9)), events=covered))
        reset = agent_pb2.AttemptReset(run_id=running_id, from_seq=11)
        await memory.append(running_chat, running_id, event_line(seq=2_000_001, attempt_reset=reset), generation=2)
        before = await memory.list_unfinished()
    assert sorted(before[:2], key=lambda run: run.run_id != waiting) == [
        _list_unfinished(run_id=waiting, chat_id=waiting_chat, agent_key="writer", last_seq=3),
        _list_unfinished(run_id=second, chat_id=waiting_chat, agent_key="writer", last_seq=2),
    ]
    assert before[2:] == [
        _list_unfinished(run_id=running_id, chat_id=running_chat, agent_key="planner", generation=2, last_seq=2_000_001)
    ]
    async with serve() as memory:
        assert await memory.list_unfinished() == before


async def test_a_chat_with_an_unfinished_run_is_not_deleted(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    with pytest.raises(ChatBusy) as caught:
        await memory.delete(chat_id)
    assert caught.value.metadata["runId"] == run_id
    assert len(await memory.context(chat_id, run_id)) == 1
    await memory.append(chat_id, run_id, run_line())
    await memory.delete(chat_id)
    with pytest.raises(NotFound):
        await memory.chat(run_id=run_id)
    with pytest.raises(NotFound):
        await memory.delete(chat_id)
    with pytest.raises(NotFound):
        await memory.append(chat_id, run_id, step_line(content("late")))
    assert list((await memory.chats()).chats) == []
    assert (await memory.append(chat_id, run_id, query_line())).chat_created


async def test_deleting_and_recreating_a_chat_concurrently_leaves_it_consistent(serve: Serve) -> None:
    chat_id = new_id()
    async with asyncio.timeout(300), serve() as memory:
        for _ in range(40):
            runs = [new_id() for _ in range(4)]
            appends = [memory.append(chat_id, run_id, query_line(), run_line()) for run_id in runs]
            late_appends = [memory.append(chat_id, run_id, step_line(content("late"))) for run_id in runs]
            deletions = [memory.delete(chat_id) for _ in range(3)]
            await asyncio.gather(*appends[:2], *deletions, *late_appends, *appends[2:], return_exceptions=True)
        await memory.append(chat_id, new_id(), query_line(), run_line())
        before = await memory.chat(chat_id=chat_id)
    async with serve() as memory:
        assert await memory.chat(chat_id=chat_id) == before
        await memory.append(chat_id, new_id(), query_line(), run_line())
        await memory.delete(chat_id)
        assert list((await memory.chats()).chats) == []


async def test_a_start_reads_only_logs_that_have_changed(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chats = [await memory.begin(f"chat {index}") for index in range(3)]
        before = await memory.chats()
    # If length and time of a log are unchanged, the index is trusted.
    path = folder / f"{chats[0][0]}.json"
    stat_before = path.stat()
    edit_log(path, lambda line: line.replace(b"chat 0", b"Chat 0"))
    os.utime(path, ns=(stat_before.st_mtime_ns, stat_before.st_mtime_ns))
    async with serve() as memory:
        assert await memory.chats() == before
    os.utime(path)
    async with serve() as memory:
        assert {chat.chat_name for chat in (await memory.chats()).chats} == {"Chat 0", "chat 1", "chat 2"}


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def _age(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA user_version=0; DROP TABLE chats;")


def _interrupt(path: Path) -> None:
    """Leave what a start left that was killed, or found a full disk, while it made the index."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM floor")
        database.commit()


HARMS: dict[str, Callable[[Path], object]] = {
    "lost": Path.unlink,
    "garbled": lambda path: path.write_bytes(b"no database at all" * 1000),
    "damaged": _damage,
    "of an early version": _age,
    "empty": lambda path: path.write_bytes(b""),
    "interrupted": _interrupt,
}


@pytest.mark.parametrize("harm", HARMS)
async def test_an_unusable_index_is_rebuilt(serve: Serve, folder: Path, harm: str) -> None:
    async with serve() as memory:
        ended, _ = await memory.begin("an ended chat")
        await memory.delete((await memory.begin_and_end("gone"))[0])
        chat_id, run_id = await memory.begin_with(step_line(content("as ever")), message="水车 turns")
        before = [await memory.chats(), await memory.list_unfinished(), await memory.search("ever")]
    HARMS[harm](folder / "index.sqlite")
    async with serve() as memory:
        assert [await memory.chats(), await memory.list_unfinished(), await memory.search("ever")] == before
        assert (await memory.chat(run_id=run_id)).chat_id == chat_id
        assert {chat.chat_id for chat in (await memory.chats()).chats} == {ended, chat_id}
        assert await memory.acquire(chat_id, run_id, "another owner")


async def test_logs_added_and_removed_while_stopped_are_noticed(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        away, run_id = await memory.begin("away")
        kept, _ = await memory.begin("kept")
    log = (folder / f"{away}.json").read_bytes()
    (folder / f"{away}.json").unlink()
    async with serve() as memory:
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [kept]
        with pytest.raises(NotFound):
            await memory.chat(run_id=run_id)
    (folder / f"{away}.json").write_bytes(log)
    async with serve() as memory:
        assert {chat.chat_id for chat in (await memory.chats()).chats} == {away, kept}


async def test_changes_the_index_refused_are_read_from_the_logs_later(tmp_path: Path) -> None:
    refusing = Refusing(tmp_path / "index.sqlite")
    index = Index(refusing, refusing.open_reader(), lambda chat_id: chat_id, DiskRoom(tmp_path))
    running = asyncio.create_task(index.run_writes())
    async with asyncio.timeout(100):
        refusing.refuses = True
        index.remove_chat("a")
        with pytest.raises(Overloaded):
            await index.find_chat_of_run("run")
        with pytest.raises(Overloaded):
            await index.find_chat_of_run("run")
        refusing.refuses = False
        assert await index.find_chat_of_run("run") is None
        assert refusing.applied == ["a"]
        index.close()
        await running


async def test_the_cost_of_a_deleted_chat_is_kept_if_its_id_is_used_again(tmp_path: Path) -> None:
    key = SpendKey(1, "default", "default", "assistant", "model", "")
    first, again = _change("a", "run"), _change("a", "another run")
    whole = {"is_whole": True, "spend": [(key, SpendSum(1, 1, 0, 1, 20))]}
    again = replace(again, chat=replace(again.chat, created_at=2), **whole)
    with closing(IndexDatabase(tmp_path / "index.sqlite", is_new=True)) as database:
        database.apply_changes([replace(first, spend=[(key, SpendSum(1, 1, 0, 1, 100))])])
        for _ in range(2):  # the deletion was never written, and the log is read for what follows it
            database.apply_changes([again])
            assert database.spend.sum_spend(SpendQuery("default", 0, 9)).total.cost_nano_usd == 120


async def test_finding_the_chat_of_a_run_does_not_wait_for_writes(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "index.sqlite")
    index = Index(slow, slow.open_reader(), lambda chat_id: chat_id, DiskRoom(tmp_path))
    running = asyncio.create_task(index.run_writes())
    async with asyncio.timeout(100):
        index.put_change(_change("a", "run of a"))
        writing = asyncio.create_task(index.find_entry("a"))
        while not slow.is_writing:
            await asyncio.sleep(0.005)
        index.put_change(_change("b", "run of b"))
        assert await index.find_chat_of_run("run of a") == "a"
        assert await index.find_chat_of_run("run of b") == "b"
        assert await index.find_chat_of_run("another") is None
        slow.go_on.set()
        await writing
        assert await index.find_entry("b") is not None
        assert await index.find_chat_of_run("run of a") == "a", "the file says it now"
        index.remove_chat("a")
        assert await index.find_chat_of_run("run of a") is None
        index.close()
        await running


def _change(chat_id: str, run_id: str) -> IndexChange:
    facts = RunInfo(run_id, "request", "assistant", started_at=1, generation=0, last_seq=0, checkpoint=0)
    entry = ChatEntry(chat_id, "name", "title", "assistant", "assistant", 1, 1, False, "default", "default")
    return IndexChange(entry, 1, 1, [facts], [])


class Slow(IndexDatabase):
    """An index file whose writes wait until `go_on` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, is_new=True)
        self.is_writing = False
        self.go_on = threading.Event()

    def apply_changes(self, changes: Iterable[IndexChange | str]) -> None:
        self.is_writing = True
        self.go_on.wait(10)
        super().apply_changes(changes)


class Refusing(IndexDatabase):
    """An index file that refuses to be written while `refuses`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, is_new=True)
        self.refuses = False
        self.applied: list[IndexChange | str] = []

    def apply_changes(self, changes: Iterable[IndexChange | str]) -> None:
        if self.refuses:
            raise sqlite3.OperationalError("database or disk is full")
        self.applied += changes


def _list_unfinished(**fields: Any) -> memory_pb2.UnfinishedRun:
    return memory_pb2.UnfinishedRun(**fields, tenant="default", user="default", chat_owner="default")


async def test_every_log_is_indexed_however_many_there_are(serve: Serve, folder: Path) -> None:
    chats = await copies(serve, folder)
    with closing(Disk(folder)) as disk:
        async with open_files(disk) as engine:
            await engine.index.wait_until_complete()
        with closing(open_index(disk)) as opened:
            assert opened.backlog == {}
            assert set(opened.database.list_logs()) == chats
            assert opened.database.list_logs() == disk.list_logs()
            entry = opened.database.find_chat(min(chats))
    assert entry is not None
    assert entry.name == "水车"


async def test_a_start_reads_the_last_changed_logs_up_to_its_limit(serve: Serve, folder: Path) -> None:
    chats = sorted(await copies(serve, folder, 4))
    for at_s, chat_id in enumerate(chats, 1_000_000):
        os.utime(folder / f"{chat_id}.json", (at_s, at_s))
    large = folder / f"{chats[-2]}.json"
    large.write_bytes(large.read_bytes().replace("水车".encode(), b"x" * (index_recovery.START_BYTES_MAX + 1)))
    os.utime(large, (1_000_002, 1_000_002))
    with closing(Disk(folder)) as disk, closing(open_index(disk)) as opened:
        assert list(opened.database.list_logs()) == [chats[-1]]
        assert list(opened.backlog) == [chats[2], chats[1], chats[0]]


async def test_a_start_that_is_stopped_is_continued_by_the_next_one(serve: Serve, folder: Path) -> None:
    chats = await copies(serve, folder)
    with closing(Disk(folder)) as disk:
        async with asyncio.timeout(300):
            opening = asyncio.create_task(open_files(disk).__aenter__())
            while not (folder / INDEX_NAME).exists():
                await asyncio.sleep(0.001)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        async with open_files(disk) as engine:
            await engine.index.wait_until_complete()
            assert set(await engine.index.list_chats()) == chats
