"""Crashes and failing disks under a real process: nothing acknowledged is lost or duplicated, and no number is missing.

strace makes calls on the log files fail; without it those tests are skipped with a notice. .ci/run installs it.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.support.memory.acknowledged import Acknowledged, kill_at_random, start
from tests.support.memory.crashing import write
from tests.support.memory.engines import Serve
from tests.support.memory.writing import new_id

CHATS = 3

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed on this machine")


def check(acknowledged: Acknowledged, folder: Path, chat_id: str, *, may_be_damaged: bool = False) -> None:
    """Compare the chat's file with what was acknowledged."""
    path = folder / f"{chat_id}.json"
    if acknowledged.check(chat_id, path.read_bytes() if path.exists() else b"") != path_bytes(path):
        assert may_be_damaged


def path_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def test_after_every_kill_the_log_continues_where_it_was(serve: Serve, folder: Path) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    for turn in map(str, range(2)):
        writer = await start(str(folder), turn, chat_ids)
        await kill_at_random(writer, acknowledged)
        # The same run again, from its start: lines that are there already are not appended again.
        async with asyncio.timeout(600), serve() as memory:
            for chat_id in chat_ids:
                check(acknowledged, folder, chat_id)
                await write(memory, chat_id, turn)
                check(acknowledged, folder, chat_id)
            assert await memory.list_unfinished() == []
            assert len((await memory.chats()).chats) == CHATS
            for chat_id in chat_ids:
                chat = await memory.chat(chat_id=chat_id)
                assert sum(event.HasField("run_complete") for event in chat.events) == int(turn) + 1


INJECTIONS = [
    "pwrite64:error=ENOSPC:when=1+2",
    "fdatasync:error=EIO:when=3+4",
    "fdatasync:signal=KILL:when=20",
    *(
        pytest.param(injection, marks=pytest.mark.nightly)
        for injection in (
            "pwrite64:error=EIO:when=4+5",
            "fdatasync:error=ENOSPC:when=1+3",
            "fsync:error=EIO:when=1+2",
            "openat:error=EMFILE:when=8+6",
            "fstat,newfstatat:error=EIO:when=6+7",
            "pwrite64:signal=KILL:when=25",
        )
    ),
]


@needs_strace
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_a_failed_call_loses_and_duplicates_nothing(serve: Serve, folder: Path, injection: str) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    async with serve():
        pass  # makes the folders, without which nothing starts
    await run_injected(folder, chat_ids, acknowledged, f"inject={injection}")
    assert acknowledged.spans
    async with asyncio.timeout(600), serve() as memory:
        for chat_id in chat_ids:
            check(acknowledged, folder, chat_id)
            await write(memory, chat_id, "turn")
            check(acknowledged, folder, chat_id)
        assert await memory.list_unfinished() == []
        assert len((await memory.chats()).chats) == CHATS


@needs_strace
async def test_an_append_that_cannot_be_undone_stops_its_chat_until_the_next_start(serve: Serve, folder: Path) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    both = ("inject=fdatasync:error=EIO:when=8+1", "-e", "inject=ftruncate:error=EIO")
    await run_injected(folder, chat_ids, acknowledged, *both)
    for chat_id in chat_ids:
        check(acknowledged, folder, chat_id, may_be_damaged=True)
    async with asyncio.timeout(600), serve() as memory:
        for chat_id in chat_ids:
            check(acknowledged, folder, chat_id)
            await write(memory, chat_id, "turn")
        assert await memory.list_unfinished() == []


@needs_strace
@pytest.mark.parametrize(
    "injection",
    ["pwrite64:error=ENOSPC:when=20+3", pytest.param("pwrite64:error=EIO:when=10+2", marks=pytest.mark.nightly)],
)
async def test_an_index_refused_by_the_disk_loses_no_append(serve: Serve, folder: Path, injection: str) -> None:
    chat_ids, acknowledged = [new_id() for _ in range(CHATS)], Acknowledged()
    names = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")
    async with serve():
        pass  # makes the index, without which nothing starts
    await run_injected(folder, chat_ids, acknowledged, f"inject={injection}", names=names)
    assert acknowledged.spans
    async with asyncio.timeout(600), serve() as memory:
        for chat_id in chat_ids:
            check(acknowledged, folder, chat_id)
        known = {chat.chat_id for chat in (await memory.chats()).chats}
        assert known == {chat_id for chat_id, _ in acknowledged.spans}
        assert {hit.chat_id for hit in await memory.search("go", limit=100)} == known


async def run_injected(
    folder: Path, chat_ids: list[str], acknowledged: Acknowledged, *expressions: str, names: tuple[str, ...] = ()
) -> None:
    """Run a writer whose calls on the log files, or on `names`, fail as the strace expressions say."""
    os.makedirs(folder, exist_ok=True)
    files = names or (".", *(f"{chat_id}.json" for chat_id in chat_ids))
    paths = [f"--trace-path={folder / name}" for name in files]
    calls = "trace=pwrite64,fdatasync,fsync,ftruncate,openat,fstat,newfstatat"
    strace = ("strace", "-f", "-qq", "-o", str(folder.parent / "strace"), *paths, "-e", calls, "-e", *expressions)
    async with asyncio.timeout(900):
        writer = await start(str(folder), "turn", chat_ids, *strace)
        printed, _ = await writer.communicate()
    for line in printed.splitlines():
        acknowledged.note(line)
    assert (
        b"INJECTED" in (folder.parent / "strace").read_bytes() or b"SIGKILL" in (folder.parent / "strace").read_bytes()
    )
