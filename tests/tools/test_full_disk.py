"""The service on a data folder that is really full: an in-memory file system in a separate mount namespace."""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DiskFull, Overloaded
from headrace.streams import reading, rpc_errors
from headrace.v1 import tools_pb2_grpc
from tests.support.small_disk import BYTES, SmallDisk, needs_mount, serving_on_small_disk
from tests.support.tools.calls import request
from tests.support.tools.suite import CHAT
from tests.support.tools.uploading import upload

pytestmark = needs_mount


@dataclass(frozen=True, slots=True)
class Small:
    """A tools service on a small disk."""

    stub: Any
    disk: SmallDisk

    async def execute(self, tool: str, chat_id: str = CHAT, effect_key: str = "", **arguments: str) -> Any:
        call = request(tool, arguments, budget=None, model=None, effect_key=effect_key, chat_id=chat_id)
        async with reading(self.stub.Execute(call)) as deltas:
            (result,) = [delta.result async for delta in deltas if delta.HasField("result")]
        return result


@asynccontextmanager
async def serving_tools(
    tmp_path: Path, *, is_full: bool = False, size: int = BYTES, reserve_bytes: int = 0
) -> AsyncGenerator[Small]:
    folder = tmp_path / "data"
    env = {
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_CONFIG_DIR": str(tmp_path),
        "HEADRACE_TOOLS_SANDBOX": "process",
        "HEADRACE_TOOLS_DISK_RESERVE_BYTES": str(reserve_bytes),
    }
    async with serving_on_small_disk("tools", folder, env, size=size, is_full=is_full) as (disk, channel):
        yield Small(tools_pb2_grpc.ToolServiceStub(channel), disk)


FILL = "for ((i = 0; ; i++)); do head -c 1000000 /dev/zero > $i; sleep 0.01; done"
RESERVE_BYTES = 96 << 20


def read_free_bytes(small: Small) -> int:
    free = os.statvfs(small.disk.path)
    return free.f_bavail * free.f_frsize


async def check_everything_works(small: Small, chat_id: str) -> None:
    assert (await small.execute("_bash_", chat_id, f"{uuid.uuid4()}", command="echo x > f; cat f")).result == "x\n"
    assert (await small.execute("write_file", chat_id, f"{uuid.uuid4()}", path="a", content="x")).ok
    with rpc_errors():
        await upload(small.stub, b"x", chat_id=chat_id)


@pytest.mark.parametrize("kind", ["bytes", "inodes"])
async def test_a_full_disk_is_reported_and_service_resumes_when_there_is_room(tmp_path: Path, kind: str) -> None:
    async with serving_tools(tmp_path) as small:
        await check_everything_works(small, CHAT)
        small.disk.fill(kind)
        other = str(uuid.uuid4())
        with pytest.raises(Overloaded, match="no room for the owner of a chat's files"):
            await small.execute("_bash_", other, command="true")
        with pytest.raises(Overloaded, match="no room for the record of a call"):
            await small.execute("_bash_", effect_key="full", command="echo acted >> acted")
        with pytest.raises(DiskFull, match="the disk has no room for files of chats"):
            await upload(small.stub, bytes(10_000))
        written = await small.execute("write_file", path="b", content="x" * 10_000)
        assert (written.ok, written.result) == (False, "'b': No space left on device")
        filling = await small.execute("_bash_", command="head -c 10000 /dev/zero > b")
        assert (filling.ok, "No space left on device" in filling.result) == (False, True)
        assert (await small.execute("read_file", path="f")).result == "x\n"

        small.disk.make_room()
        await check_everything_works(small, CHAT)
        await check_everything_works(small, other)
        assert (await small.execute("_bash_", effect_key="full", command="ls acted")).result.startswith("ls: cannot")


async def test_a_service_starts_on_a_full_disk_and_works_once_there_is_room(tmp_path: Path) -> None:
    async with serving_tools(tmp_path, is_full=True) as small:
        with pytest.raises(Overloaded):
            await small.execute("write_file", path="b", content="x")
        small.disk.make_room()
        await check_everything_works(small, CHAT)


async def test_commands_and_files_leave_the_reserve_to_chats(tmp_path: Path) -> None:
    async with serving_tools(tmp_path, size=2 * RESERVE_BYTES, reserve_bytes=RESERVE_BYTES) as small:
        other = str(uuid.uuid4())
        waiting = asyncio.create_task(
            small.execute("_bash_", other, command="while [ ! -e go ]; do sleep 0.01; done; echo done")
        )
        filling = await small.execute("_bash_", command=FILL)
        assert not filling.ok
        assert "the disk is almost full" in filling.result
        assert "nothing can be written until somebody makes room" in filling.result
        assert 0 < read_free_bytes(small) < RESERVE_BYTES

        written = await small.execute("write_file", path="b", content="x")
        assert (written.ok, written.result) == (False, "'b': No space left on device")
        with pytest.raises(DiskFull) as caught, rpc_errors():
            await upload(small.stub, b"x")
        assert caught.value.retry_after_s
        free_bytes = read_free_bytes(small)
        assert not (await small.execute("_bash_", command="head -c 100000 /dev/zero > b")).ok
        assert read_free_bytes(small) >= free_bytes - 4096
        assert not waiting.done(), "a command that adds nothing goes on"

        assert (await small.execute("_bash_", command="rm [0-9]*; echo deleted")).result.startswith("deleted\n")
        await check_everything_works(small, CHAT)
        (small.disk.path / "workspaces" / other / "go").touch()
        assert (await waiting).result == "done\n"


async def test_an_upload_is_counted_against_the_reserve_once(tmp_path: Path) -> None:
    data = bytes(8 << 20)
    async with serving_tools(tmp_path, size=RESERVE_BYTES + len(data) * 3 // 2, reserve_bytes=RESERVE_BYTES) as small:
        with rpc_errors():
            await upload(small.stub, data)
            with pytest.raises(DiskFull):
                await upload(small.stub, data)
