"""Versions of agents: each definition is kept once, with a number that stays its own."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from headrace.errors import LogDamaged, NotFound
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from tests.support.memory.agent_versions import put
from tests.support.memory.engines import Serve
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines


async def read(memory: Memory, version: int = 0, digest: str = "", *, is_shared: bool = True) -> bytes:
    request = memory_pb2.ReadAgentVersionRequest(agent_key="a", is_shared=is_shared, version=version, hash=digest)
    with rpc_errors():
        return (await memory.stub.ReadAgentVersion(request)).definition.encode()


async def test_a_definition_keeps_its_number(serve: Serve) -> None:
    async with serve() as memory:
        assert [await put(memory, text) for text in (b"1", b"2", b"1", b"3", b"2")] == [1, 2, 1, 3, 2]
        assert await put(memory, b"1", "b") == 1
        assert await put(memory, b"2", is_shared=False) == 1, "a tenant's agents are numbered apart"
    async with serve() as memory:
        assert await put(memory, b"3") == 3
        assert await put(memory, b"4") == 4
        assert await read(memory, 2) == b"2"
        assert await read(memory, digest=hashlib.sha256(b"4").hexdigest()) == b"4"
        assert await read(memory, 1, is_shared=False) == b"2"
        for version, digest in ((5, ""), (0, "0" * 64), (0, "")):
            with pytest.raises(NotFound):
                await read(memory, version, digest)


async def test_writers_at_the_same_time_get_each_a_number_of_its_own(memory: Memory) -> None:
    texts = [b"%d" % (index % 5) for index in range(20)]
    numbers = await asyncio.gather(*(put(memory, text) for text in texts))
    assert sorted(set(numbers)) == [1, 2, 3, 4, 5]
    assert len(set(zip(texts, numbers, strict=True))) == 5


async def test_a_definition_that_the_disk_has_damaged_is_not_given_out(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await put(memory, b'{"a":1}')
        await put(memory, b'{"a":2}')
        [path] = [path for path in (folder / "agents" / "versions").iterdir() if path.name.endswith(".1")]
        path.write_bytes(path.read_bytes().replace(b'"a":1', b'"a":7'))
        with pytest.raises(LogDamaged):
            await read(memory, 1)
        assert await read(memory, 2) == b'{"a":2}'
        path.with_name(path.name.removesuffix(".1") + ".2").write_bytes(b"{")
    async with serve() as memory:
        assert await put(memory, b'{"a":3}') == 3
