"""Tenants' agents as memory keeps them: one definition in force for each key, fenced, told to services in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded, VersionConflict
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.rpc.call_ids import forward_metadata
from tests.support.memory.engines import Serve
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines

ADA = Identity("acme", "ada", scopes=frozenset({"publish"}))
BOB = Identity("bolt", "bob", scopes=frozenset({"publish"}))


async def _call(who: Identity | None, rpc: Any, request: Any) -> Any:
    with acting_as(who), rpc_errors():
        return await rpc(request, metadata=forward_metadata())


def put(
    memory: Memory, key: str, text: str, version: int = 1, expected: int | None = None, who: Identity = ADA
) -> Awaitable[memory_pb2.PutAgentDefinitionResponse]:
    request = memory_pb2.PutAgentDefinitionRequest(
        agent_key=key, definition=text, version=version, expected_version=expected
    )
    return _call(who, memory.stub.PutAgentDefinition, request)


def remove(memory: Memory, key: str, expected: int | None = None, who: Identity = ADA) -> Awaitable[Any]:
    request = memory_pb2.DeleteAgentDefinitionRequest(agent_key=key, expected_version=expected)
    return _call(who, memory.stub.DeleteAgentDefinition, request)


async def changes(memory: Memory, after: int = 0) -> tuple[list[tuple[str, str, str, int]], int]:
    found: list[tuple[str, str, str, int]] = []
    while True:
        reply = await _call(
            None, memory.stub.ReadAgentChanges, memory_pb2.ReadAgentChangesRequest(after_revision=after)
        )
        found += [(agent.tenant, agent.agent_key, agent.definition, agent.version) for agent in reply.agents]
        after = reply.revision
        if not reply.has_more:
            return found, after


async def test_changes_are_told_in_order_and_survive_a_restart(serve: Serve) -> None:
    async with serve() as memory:
        await put(memory, "a", "{1}")
        await put(memory, "b", "{2}", who=BOB)
        stored = (await put(memory, "a", "{3}", 2)).agent
        assert (stored.tenant, stored.updated_by, stored.version) == ("acme", "ada", 2)
        told, revision = await changes(memory)
        assert told == [("bolt", "b", "{2}", 1), ("acme", "a", "{3}", 2)]
        await put(memory, "a", "{3}", 2)
        again, revision = await changes(memory, revision)
        assert again == told[1:], "what is stored already is stored once more, for a standby that lacks it"
    async with serve() as memory:
        assert (await changes(memory))[0] == told
        await remove(memory, "b", who=BOB)
        assert (await changes(memory, revision))[0] == [("bolt", "b", "", 1)]
        await put(memory, "b", "{4}", 2, 0, who=BOB)
        assert (await changes(memory))[0] == [("acme", "a", "{3}", 2), ("bolt", "b", "{4}", 2)]


async def test_a_change_is_fenced_by_what_its_writer_saw(memory: Memory) -> None:
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


async def test_of_writers_at_the_same_time_one_is_first(memory: Memory) -> None:
    await put(memory, "a", "{0}", 1)
    tries = [put(memory, "a", f"{{{n}}}", n, 1) for n in range(2, 8)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert all(isinstance(result, VersionConflict | memory_pb2.PutAgentDefinitionResponse) for result in results)


async def test_a_tenant_has_room_for_so_much(memory: Memory) -> None:
    half = "x" * 524_288
    for n in range(16):
        await put(memory, f"big{n}", half)
    with pytest.raises(QuotaExceeded, match="bytes at most"):
        await put(memory, "more", "{}")
    await put(memory, "big0", half[:-2], 2)
    await put(memory, "more", "{}")
    await put(memory, "other", half, who=BOB)
    told, _ = await changes(memory)
    assert len(told) == 18, "all pages of a listing that is larger than one message"
