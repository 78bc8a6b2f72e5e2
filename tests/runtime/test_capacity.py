"""Capacity that tenants share: no tenant can use it up for the others."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import Overloaded
from headrace.streams import reading
from headrace.v1 import llm_pb2_grpc
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.auth.settings import AuthSettings
from services.runtime.capacity import RETRY_AFTER_S, Capacity
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import serving_grpc
from tests.support.issuing import INTERNAL
from tests.support.scripted_llm import REQUEST, SILENCE_S, ScriptedLlm, build_service, read


def take_all(room: Capacity, tenant: str) -> int:
    """Acquire as much as the tenant may; return how much it was."""
    count = 0
    while room.has_room_for(tenant):
        room.acquire(tenant)
        count += 1
    return count


def test_each_greedy_tenant_leaves_half_of_the_rest() -> None:
    room = Capacity(1000, is_shared=True)
    assert [take_all(room, tenant) for tenant in "abcd"] == [500, 250, 125, 63]
    assert room.used == 938


def test_a_returned_place_is_free_for_the_next_caller() -> None:
    room = Capacity(4, is_shared=True)
    assert take_all(room, "a") == 2
    assert not room.has_room_for("a")
    room.release("a")
    assert room.has_room_for("a")
    room.release("a")
    assert room.used == 0


def test_the_smallest_capacity_is_for_one_call() -> None:
    room = Capacity(1, is_shared=True)
    assert take_all(room, "a") == 1
    assert not room.has_room_for("b")


def test_a_single_tenant_may_use_the_whole_capacity() -> None:
    room = Capacity(4, is_shared=False)
    assert take_all(room, "default") == 4


def test_acquire_succeeds_even_beyond_the_capacity() -> None:
    room = Capacity(1, is_shared=True)
    for _ in range(3):
        room.acquire("a")
    assert (room.used, room.has_room_for("a"), room.has_room_for("b")) == (3, False, False)


async def test_a_tenant_with_many_streams_leaves_some_for_another() -> None:
    llm = ScriptedLlm(["a", SILENCE_S])  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    auth = AuthSettings(auth="peers", internal_token=INTERNAL)
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0, streams_max=2, auth=auth)
    async with (
        asyncio.timeout(100),
        serving_grpc(settings, [build_service(llm)]) as running,
        open_channel(running.addresses[0], build_caller_metadata(auth, ORCHESTRATOR)) as channel,
    ):
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        with acting_as(Identity("acme", "ada")):
            first = stub.StreamChat(REQUEST)
            async with reading(first) as ours:
                await anext(ours)
                with pytest.raises(Overloaded, match="1 streams are open already") as caught:
                    await read(stub.StreamChat(REQUEST), [])
                assert caught.value.retry_after_s == RETRY_AFTER_S
                with acting_as(Identity("globex", "bob")):
                    async with reading(stub.StreamChat(REQUEST)) as theirs:
                        assert (await anext(theirs)).content == "a"
