"""Disks that refuse: sync fails by an argument, writes break off at a real limit on file size, and a file system in
memory, in a mount namespace of the service's own, is really full.
"""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.errors import DiskFull, HeadraceError, LogDamaged, NotFound, Overloaded
from services.memory.log.recovery import verify_log
from services.memory.storage.files.commits import FILES_MIN
from services.runtime.rpc.health import CHAIN, SERVING
from tests.support.memory.engines import Serve, logs_in
from tests.support.memory.held_sync import HeldSync
from tests.support.memory.messages import content, user
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line
from tests.support.small_disk import SmallDisk, needs_mount, serving_on_small_disk


@contextmanager
def file_size_limited(size_bytes: int) -> Generator[None]:
    """Make writes of this process beyond `size_bytes` of a file end short, and then fail with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failed_sync_refuses_the_append_and_leaves_the_file_unchanged(serve: Serve, folder: Path) -> None:
    sync = HeldSync()
    async with serve(sync=sync) as memory:
        chat_id, run_id = await memory.begin()
        before = (folder / f"{chat_id}.json").read_bytes()
        sync.fails = True
        request_id = new_id()
        with pytest.raises(Overloaded, match="Input/output error"):
            await memory.append(chat_id, run_id, step_line(content("a")), request_id=request_id)
        assert (folder / f"{chat_id}.json").read_bytes() == before
        assert len(await memory.context(chat_id, run_id)) == 1
        sync.fails = False
        reply = await memory.append(chat_id, run_id, step_line(content("a")), request_id=request_id)
        assert reply.first_n == 2
        assert len(await memory.context(chat_id, run_id)) == 2


async def test_a_run_whose_end_is_refused_stays_unfinished(serve: Serve) -> None:
    sync = HeldSync()
    async with serve(sync=sync) as memory:
        chat_id, run_id = await memory.begin()
        sync.fails = True
        with pytest.raises(Overloaded):
            await memory.append(chat_id, run_id, run_line())
        assert [run.run_id for run in await memory.list_unfinished()] == [run_id]
        sync.fails = False
        await memory.append(chat_id, run_id, run_line())
        assert await memory.list_unfinished() == []


async def test_a_state_update_does_not_conflict_with_one_that_the_disk_refused(serve: Serve) -> None:
    sync = HeldSync()
    async with serve(sync=sync) as memory, asyncio.TaskGroup() as group:
        chat_id, run_id = await memory.begin()
        sync.hold()
        busy = group.create_task(catch(memory.append(chat_id, run_id, step_line(content("a")))))
        await asyncio.to_thread(sync.reached.wait, 10)
        changes = [group.create_task(catch(memory.update_state(chat_id, 0, f'{{"by":{n}}}'))) for n in range(2)]
        await memory.list_unfinished()  # so that both wait for the disk
        await memory.list_unfinished()
        sync.fails = True
        sync.go_on.set()
        assert [type(await task) for task in (busy, *changes)] == [Overloaded] * 3
        sync.fails = False
        assert await memory.update_state(chat_id, 0, "{}") == 1


async def catch(call: Awaitable[object]) -> object:
    """Return the result or the error."""
    try:
        return await call
    except HeadraceError as error:
        return error


async def test_a_new_chat_whose_first_append_fails_does_not_exist(serve: Serve) -> None:
    sync = HeldSync()
    async with serve(sync=sync) as memory:
        sync.fails = True
        chat_id, run_id = new_id(), new_id()
        with pytest.raises(Overloaded):
            await memory.append(chat_id, run_id, query_line())
        with pytest.raises(NotFound):
            await memory.chat(chat_id=chat_id)
        sync.fails = False
        assert (await memory.append(chat_id, run_id, query_line())).chat_created
    async with serve() as memory:
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id]


async def test_an_interrupted_write_leaves_no_partial_line(memory: Memory, folder: Path) -> None:
    # Long, so that the limit affects only the log, not the index or the output.
    chat_id, run_id = await memory.begin("x" * 1_000_000)
    path = folder / f"{chat_id}.json"
    before = path.read_bytes()
    with file_size_limited(len(before) + 300), pytest.raises(Overloaded, match="File too large"):
        await memory.append(chat_id, run_id, step_line(content("x" * 5000)))
    assert path.read_bytes() == before
    assert (await memory.append(chat_id, run_id, step_line(content("y")))).first_n == 2


async def test_appends_that_share_a_failed_write_all_fail_and_leave_no_gap(serve: Serve) -> None:
    sync = HeldSync()
    async with asyncio.timeout(200), serve(sync=sync) as memory:
        chat_id, run_id = await memory.begin()
        sync.fails = True
        appends = (memory.append(chat_id, run_id, step_line(user(str(index)))) for index in range(20))
        replies = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(reply) for reply in replies} == {Overloaded}
        sync.fails = False
        assert (await memory.append(chat_id, run_id, step_line(user("x")))).first_n == 2


async def test_of_many_chats_written_together_only_the_failing_one_is_refused(serve: Serve, folder: Path) -> None:
    sync = HeldSync()
    async with asyncio.timeout(200), serve(sync=sync) as memory:
        chats = [await memory.begin() for _ in range(2 * FILES_MIN + 1)]
        os.unlink(folder / f"{chats[7][0]}.json")
        sync.hold()
        first = asyncio.create_task(memory.append(*chats[0], step_line(user("a"))))
        await asyncio.to_thread(sync.reached.wait, 10)
        others = [asyncio.create_task(memory.append(*chat, step_line(user("b")))) for chat in chats[1:]]
        await memory.context(*chats[0])  # the server has seen them before this call
        sync.go_on.set()
        replies = await asyncio.gather(first, *others, return_exceptions=True)
        assert [index for index, reply in enumerate(replies) if isinstance(reply, Overloaded)] == [7]
        assert [len(await memory.context(*chat)) for chat in chats] == [2] * 7 + [1] + [2] * (len(chats) - 8)


async def test_a_failure_whose_caller_has_left_does_not_stop_the_writer(serve: Serve) -> None:
    sync = HeldSync()
    async with asyncio.timeout(200), serve(sync=sync) as memory:
        chat_id, run_id = await memory.begin()
        sync.hold()
        sync.fails = True
        leaving = asyncio.create_task(memory.append(chat_id, run_id, step_line(user("a"))))
        await asyncio.to_thread(sync.reached.wait, 10)
        leaving.cancel()
        await asyncio.wait([leaving])
        await memory.context(chat_id, run_id)  # the server has seen the cancel before this call
        sync.go_on.set()
        with pytest.raises(Overloaded):
            await memory.append(chat_id, run_id, step_line(user("b")))
        sync.fails = False
        assert (await memory.append(chat_id, run_id, step_line(user("c")))).first_n == 2


async def test_a_log_that_cannot_be_repaired_is_read_only(serve: Serve, folder: Path) -> None:
    def break_for_good(fd: int) -> None:
        # The clean-up of the append meets this too: its file is closed under it.
        if broken:
            os.close(fd)
            os.open(os.devnull, os.O_RDONLY)
        os.fdatasync(fd)

    broken = False
    async with serve(sync=break_for_good) as memory:
        chat_id, run_id = await memory.begin()
        broken = True
        with pytest.raises(LogDamaged, match="could not be put right"):
            await memory.append(chat_id, run_id, step_line(user("a")))
        broken = False
        with pytest.raises(LogDamaged, match="not written"):
            await memory.append(chat_id, run_id, step_line(user("b")))
        assert len(await memory.context(chat_id, run_id)) == 1


async def test_a_removed_log_is_not_recreated_with_a_gap(memory: Memory, folder: Path) -> None:
    chat_id, run_id = await memory.begin()
    os.unlink(folder / f"{chat_id}.json")
    with pytest.raises(Overloaded, match="No such file"):
        await memory.append(chat_id, run_id, step_line(user("a")))
    assert logs_in(folder) == []


@dataclass(frozen=True, slots=True)
class Small:
    """A memory service on a small disk."""

    memory: Memory
    disk: SmallDisk
    channel: grpc.aio.Channel
    metrics_url: str

    async def is_ready(self) -> bool:
        """Return whether the service and all that it needs can be used."""
        health = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=CHAIN)
        return (await health.Check(request)).status == SERVING  # pyright: ignore[reportAttributeAccessIssue] - untyped

    async def is_full(self) -> bool:
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as response:
            return "headrace_disk_full 1.0" in await response.text()


@asynccontextmanager
async def serving_memory(tmp_path: Path) -> AsyncGenerator[Small]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    folder = tmp_path / "chats"
    env = {"HEADRACE_MEMORY_CHAT_DIR": str(folder), "HEADRACE_MEMORY_METRICS_LISTEN": metrics}
    async with serving_on_small_disk("memory", folder, env) as (disk, channel):
        yield Small(Memory.reach(channel), disk, channel, f"http://{metrics}/metrics")


@needs_mount
@pytest.mark.parametrize("kind", ["bytes", "inodes"])
async def test_a_full_disk_is_reported_and_left_once_there_is_room(tmp_path: Path, kind: str) -> None:
    async with serving_memory(tmp_path) as small:
        memory = small.memory
        chat_id, run_id = await memory.begin("hello world")
        blob_id = await memory.put_blob(chat_id, b"picture")
        small.disk.fill(kind)
        message_count = await append_until_refused(memory, chat_id, run_id) if kind == "bytes" else 1
        refused_chat = new_id()

        for _ in range(20):
            with pytest.raises(DiskFull) as refused:
                await memory.append(refused_chat, new_id(), query_line())
            assert refused.value.retry_after_s
        for write in (memory.put_blob(chat_id, b"other"), memory.fork(chat_id)):
            with pytest.raises(DiskFull):
                await write
        if kind == "bytes":  # a record takes no inode
            with pytest.raises(DiskFull):
                await memory.remember("a fact")
        assert (await small.is_ready(), await small.is_full()) == (False, True)

        assert len(await memory.context(chat_id, run_id)) == message_count
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id]
        assert {hit.chat_id for hit in await memory.search("hello world")} == {chat_id}
        assert (await memory.blob(chat_id, blob_id)).data == b"picture"
        assert (await memory.chat(run_id=run_id)).chat_id == chat_id
        assert [run.run_id for run in await memory.list_unfinished()] == [run_id]

        small.disk.make_room()
        while not await small.is_ready():
            await asyncio.sleep(0.05)
        assert not await small.is_full()
        await memory.append(refused_chat, new_id(), query_line())
        await memory.append(chat_id, run_id, run_line())
        assert await memory.put_blob(chat_id, b"other")
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id, refused_chat]
        assert len(await memory.context(chat_id, run_id)) == message_count
        for log in small.disk.path.glob("*.json"):
            report = verify_log(log.read_bytes(), log.stem)
            assert (report.problems, report.torn_bytes) == ([], 0)


@needs_mount
async def test_a_started_run_can_end_without_a_free_inode(tmp_path: Path) -> None:
    async with serving_memory(tmp_path) as small:
        chat_id, run_id = await small.memory.begin()
        small.disk.fill("inodes")
        with pytest.raises(DiskFull):
            await small.memory.begin()
        await small.memory.append(chat_id, run_id, step_line(user("a")), run_line())
        assert await small.memory.list_unfinished() == []


async def append_until_refused(memory: Memory, chat_id: str, run_id: str) -> int:
    """Return the number of messages that were accepted."""
    for count in range(1, 1000):
        try:
            await memory.append(chat_id, run_id, step_line(user("x" * 500)))
        except DiskFull:
            return count
    raise AssertionError("the disk takes everything")
