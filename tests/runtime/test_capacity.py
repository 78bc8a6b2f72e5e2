"""Room that tenants share: nobody finds none because another was first."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from headrace.errors import Overloaded
from headrace.streams import reading
from headrace.v1 import llm_pb2_grpc
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.auth.settings import AuthSettings
from services.runtime.capacity import PASSES_MAX, RETRY_AFTER_S, Capacity, Turnstile
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import serving_grpc
from tests.support.issuing import INTERNAL
from tests.support.scripted_llm import (
    REQUEST,
    SILENCE_S,
    TEST_TIMEOUT_S,
    ScriptedLlm,
    build_service,
    read,
    serving_script,
)


def take_all(room: Capacity, tenant: str) -> int:
    """Take what the tenant may; how much it was."""
    count = 0
    while room.has_room_for(tenant):
        room.acquire(tenant)
        count += 1
    return count


def test_each_greedy_tenant_leaves_as_much_as_it_has() -> None:
    room = Capacity(1000, is_shared=True)
    assert [take_all(room, tenant) for tenant in "abcd"] == [500, 250, 125, 63]
    assert room.used == 938


def test_what_is_given_back_is_there_for_whoever_comes() -> None:
    room = Capacity(4, is_shared=True)
    assert take_all(room, "a") == 2
    assert not room.has_room_for("a")
    room.release("a")
    assert room.has_room_for("a")
    room.release("a")
    assert room.used == 0


def test_the_smallest_room_is_for_one() -> None:
    room = Capacity(1, is_shared=True)
    assert take_all(room, "a") == 1
    assert not room.has_room_for("b")


def test_where_everybody_is_one_tenant_it_has_all() -> None:
    room = Capacity(4, is_shared=False)
    assert take_all(room, "default") == 4


def test_who_has_been_accepted_is_not_refused() -> None:
    room = Capacity(1, is_shared=True)
    for _ in range(3):
        room.acquire("a")
    assert (room.used, room.has_room_for("a"), room.has_room_for("b")) == (3, False, False)


async def test_a_tenant_with_many_streams_leaves_some_to_another() -> None:
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


async def enter(turnstile: Turnstile, tenant: str, entered: list[str]) -> None:
    await turnstile.pass_through(tenant)
    entered.append(tenant)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_who_comes_alone_does_not_wait() -> None:
    turnstile = Turnstile()
    for _ in range(3 * PASSES_MAX):
        passing = turnstile.pass_through("a")
        try:
            passing.send(None)
        except StopIteration:
            await settled()
        else:
            raise AssertionError("it waits")


async def test_a_flood_of_one_tenant_stands_behind_the_first_call_of_another() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for tenant in "a" * 2000 + "bbc":
            group.create_task(enter(turnstile, tenant, entered))
    assert len(entered) == 2003
    assert "".join(entered).startswith("a" * PASSES_MAX + "abcabaaa")


async def test_other_tasks_go_on_while_a_flood_is_let_in() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(enter(turnstile, "a", entered))
        known = 0
        while len(entered) < 100:
            await asyncio.sleep(0)
            assert len(entered) - known <= PASSES_MAX
            known = len(entered)


async def test_who_leaves_while_waiting_takes_no_turn() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(enter(turnstile, "a", entered)) for _ in range(4 * PASSES_MAX)]
        await asyncio.sleep(0)
        for task in tasks[PASSES_MAX:-1]:
            task.cancel()
        await tasks[-1]
    assert len(entered) == PASSES_MAX + 1
    assert entered == ["a"] * len(entered)


class Begun:
    """A script that knows how many calls began to play it in each turn of the loop."""

    def __init__(self) -> None:
        self.by_turn: Counter[int] = Counter()
        self._turn = 0

    def __iter__(self) -> Iterator[str]:
        self.by_turn[self._turn] += 1
        return iter(["a"])

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turn += 1


async def test_few_streams_begin_in_one_turn() -> None:
    begun = Begun()
    async with asyncio.timeout(TEST_TIMEOUT_S), serving_script(begun) as suite:
        counting = asyncio.create_task(begun.count_turns())
        answers: list[list[str]] = [[] for _ in range(300)]
        await asyncio.gather(*(read(suite.stub.StreamChat(REQUEST), answer) for answer in answers))
        counting.cancel()
    assert answers == [["a"]] * 300
    assert max(begun.by_turn.values()) <= PASSES_MAX
