"""Tenants' agents in memory: one definition in force per key, changed with fencing, and read by services in order. And
their versions: each definition is stored once, with a permanent number.
"""

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, LogDamaged, NotFound, QuotaExceeded, VersionConflict
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import Identity
from tests.support.memory.agent_versions import put_version
from tests.support.memory.engines import Serve
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines

ADA = Identity("acme", "ada", scopes=frozenset({"publish"}))
BOB = Identity("bolt", "bob", scopes=frozenset({"publish"}))


async def put(
    memory: Memory, key: str, text: str, version: int = 1, expected: int | None = None, who: Identity = ADA
) -> memory_pb2.PutAgentDefinitionResponse:
    fields = {"agent_key": key, "definition": text, "version": version, "expected_version": expected}
    return await memory.call_as(who, "PutAgentDefinition", **fields)


async def remove(memory: Memory, key: str, expected: int | None = None, who: Identity = ADA) -> Any:
    return await memory.call_as(who, "DeleteAgentDefinition", agent_key=key, expected_version=expected)


async def read_changes(memory: Memory, after: int = 0) -> tuple[list[tuple[str, str, str, int]], int]:
    found: list[tuple[str, str, str, int]] = []
    while True:
        reply = await memory.call_as(None, "ReadAgentChanges", after_revision=after)
        found += [(agent.tenant, agent.agent_key, agent.definition, agent.version) for agent in reply.agents]
        after = reply.revision
        if not reply.has_more:
            return found, after


@pytest.mark.engines("encrypted postgres")
async def test_changes_are_read_in_order_and_survive_a_restart(serve: Serve) -> None:
    async with serve() as memory:
        await put(memory, "a", "{1}")
        await put(memory, "b", "{2}", who=BOB)
        stored = (await put(memory, "a", "{3}", 2)).agent
        assert (stored.tenant, stored.updated_by, stored.version) == ("acme", "ada", 2)
        agents, revision = await read_changes(memory)
        assert agents == [("bolt", "b", "{2}", 1), ("acme", "a", "{3}", 2)]
        await put(memory, "a", "{3}", 2)
        again, revision = await read_changes(memory, revision)
        assert again == agents[1:], "what is stored already is stored once more, for a standby that lacks it"
    async with serve() as memory:
        assert (await read_changes(memory))[0] == agents
        await remove(memory, "b", who=BOB)
        assert (await read_changes(memory, revision))[0] == [("bolt", "b", "", 1)]
        await put(memory, "b", "{4}", 2, 0, who=BOB)
        assert (await read_changes(memory))[0] == [("acme", "a", "{3}", 2), ("bolt", "b", "{4}", 2)]


async def test_a_change_based_on_an_outdated_version_is_refused(memory: Memory) -> None:
    for _ in range(2):  # a repetition is answered as the first was
        await put(memory, "a", "{1}", 1, 0)
    for refused in (put(memory, "a", "{2}", 2, 0), put(memory, "a", "{2}", 2, 5), remove(memory, "a", 5)):
        with pytest.raises(VersionConflict, match="version 1 is in force") as caught:
            await refused
        assert caught.value.metadata["version"] == "1"
    with pytest.raises(InvalidRequest, match="differs in case alone"):
        await put(memory, "A", "{2}", 1)
    for refused in (remove(memory, "b"), remove(memory, "a", who=BOB), remove(memory, "A")):
        with pytest.raises(NotFound):
            await refused
    await put(memory, "a", "{2}", 2, 1)
    await remove(memory, "a", 2)
    with pytest.raises(NotFound):
        await remove(memory, "a")
    with pytest.raises(VersionConflict, match="there is no such agent"):
        await put(memory, "a", "{3}", 3, 2)


async def test_only_one_of_several_simultaneous_writers_succeeds(memory: Memory) -> None:
    await put(memory, "a", "{0}", 1)
    tries = [put(memory, "a", f"{{{n}}}", n, 1) for n in range(2, 8)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert all(isinstance(result, VersionConflict | memory_pb2.PutAgentDefinitionResponse) for result in results)


async def test_the_size_of_a_tenants_definitions_is_bounded(memory: Memory) -> None:
    half = "x" * 524_288
    for n in range(16):
        await put(memory, f"big{n}", half)
    with pytest.raises(QuotaExceeded, match="bytes at most"):
        await put(memory, "more", "{}")
    await put(memory, "big0", half[:-2], 2)
    await put(memory, "more", "{}")
    await put(memory, "other", half, who=BOB)
    agents, _ = await read_changes(memory)
    assert len(agents) == 18, "all pages of a listing that is larger than one message"


async def read(memory: Memory, version: int = 0, digest: str = "", *, is_shared: bool = True) -> bytes:
    return (
        await memory.call("ReadAgentVersion", agent_key="a", is_shared=is_shared, version=version, hash=digest)
    ).definition.encode()


@pytest.mark.engines("encrypted")
async def test_a_definition_keeps_its_version_number(serve: Serve) -> None:
    async with serve() as memory:
        assert [await put_version(memory, text) for text in (b"1", b"2", b"1", b"3", b"2")] == [1, 2, 1, 3, 2]
        assert await put_version(memory, b"1", "b") == 1
        assert await put_version(memory, b"2", is_shared=False) == 1, "a tenant's agents are numbered apart"
    async with serve() as memory:
        assert await put_version(memory, b"3") == 3
        assert await put_version(memory, b"4") == 4
        assert await read(memory, 2) == b"2"
        assert await read(memory, digest=hashlib.sha256(b"4").hexdigest()) == b"4"
        assert await read(memory, 1, is_shared=False) == b"2"
        for version, digest in ((5, ""), (0, "0" * 64), (0, "")):
            with pytest.raises(NotFound):
                await read(memory, version, digest)


async def test_simultaneous_writers_get_one_number_per_definition(memory: Memory) -> None:
    texts = [b"%d" % (index % 5) for index in range(20)]
    numbers = await asyncio.gather(*(put_version(memory, text) for text in texts))
    assert sorted(set(numbers)) == [1, 2, 3, 4, 5]
    assert len(set(zip(texts, numbers, strict=True))) == 5


async def test_a_definition_damaged_on_disk_is_not_returned(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await put_version(memory, b'{"a":1}')
        await put_version(memory, b'{"a":2}')
        with closing(sqlite3.connect(folder / "records.sqlite")) as database, database:
            harm = "UPDATE agent_versions SET definition = ? WHERE version = 1"
            database.execute(harm, (b'{"a":7}',))
        with pytest.raises(LogDamaged):
            await read(memory, 1)
        assert await read(memory, 2) == b'{"a":2}'
        assert await put_version(memory, b'{"a":3}') == 3
