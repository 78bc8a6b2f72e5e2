"""The service on a file system that is really full: one in memory, of a mount namespace of the service's own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.errors import DiskFull
from services.memory.log.verify import verify_log
from services.runtime.rpc.health import CHAIN, SERVING
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line, user
from tests.support.small_disk import SmallDisk, needs_mount, serving_on_small_disk

pytestmark = needs_mount


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
        yield Small(
            Memory.reach(channel),
            disk,
            channel,
            f"http://{metrics}/metrics",
        )


@pytest.mark.parametrize("kind", ["bytes", "inodes"])
async def test_a_full_disk_is_a_state_that_is_told_and_left(tmp_path: Path, kind: str) -> None:
    async with serving_memory(tmp_path) as small:
        memory = small.memory
        chat_id, run_id = await memory.begin("hello world")
        blob_id = await memory.put_blob(chat_id, b"picture")
        small.disk.fill(kind)
        appended = await append_until_refused(memory, chat_id, run_id) if kind == "bytes" else 1
        refused_chat = new_id()

        for _ in range(20):
            with pytest.raises(DiskFull) as refused:
                await memory.append(refused_chat, new_id(), query_line())
            assert refused.value.retry_after_s
        for write in (memory.put_blob(chat_id, b"other"), memory.fork(chat_id), memory.remember("a fact")):
            with pytest.raises(DiskFull):
                await write
        assert (await small.is_ready(), await small.is_full()) == (False, True)

        assert len(await memory.context(chat_id, run_id)) == appended
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
        assert len(await memory.context(chat_id, run_id)) == appended
        for log in small.disk.path.glob("*.json"):
            report = verify_log(log.read_bytes(), log.stem)
            assert (report.problems, report.torn_bytes) == ([], 0)


async def test_a_run_that_has_begun_ends_although_there_is_no_inode_for_a_new_one(tmp_path: Path) -> None:
    async with serving_memory(tmp_path) as small:
        chat_id, run_id = await small.memory.begin()
        small.disk.fill("inodes")
        with pytest.raises(DiskFull):
            await small.memory.begin()
        await small.memory.append(chat_id, run_id, step_line(user("a")), run_line())
        assert await small.memory.list_unfinished() == []


async def append_until_refused(memory: Memory, chat_id: str, run_id: str) -> int:
    """Return the number of messages that were taken."""
    for count in range(1, 1000):
        try:
            await memory.append(chat_id, run_id, step_line(user("x" * 500)))
        except DiskFull:
            return count
    raise AssertionError("the disk takes everything")
