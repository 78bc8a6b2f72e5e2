"""deploy/gateway in front of several replicas: calls are spread over all, and stopping one fails no call."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from headrace.errors import Overloaded, ProviderUnavailable
from headrace.v1 import agent_pb2
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.support.facade import fronts
from tests.support.facade.fronts import Timing, gateway
from tests.support.facade.peers import Peer
from tests.support.facade.scripted import (
    CHAT,
    RUN,
    Script,
    ScriptedMemory,
    answering,
    complete,
    make_peer_services,
    opening,
)

pytestmark = pytest.mark.usefixtures("h2")

CALLS = 60

RECONNECT_S = 0.5
"""The time in which a gateway finds a replica again; it retries after 0.1 s and then less often."""

ANSWER_S = 0.2
"""Duration of a run, so that a replica is busy when it is told to stop."""

Ask: TypeAlias = Callable[[aiohttp.ClientSession], Awaitable[int]]

ANSWER = agent_pb2.AgentDelta(
    seq=1, timestamp=1, run_start=agent_pb2.RunStart(run_id=RUN, chat_id=CHAT, agent_key="helper")
)
EVENTS = (ANSWER, complete(2))
LIST = agent_pb2.ListAgentsResponse()
STOPPING = Overloaded("the service is being stopped; try again", retry_after_s=0)


@asynccontextmanager
async def serving_replicas(folder: Path, peers: Sequence[Peer]) -> AsyncGenerator[aiohttp.ClientSession]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(200))
        addresses: list[str] = []
        for number, peer in enumerate(peers):
            settings = ServerSettings(listen=f"unix:{folder}/{number}", drain_s=0)
            running = await stack.enter_async_context(serving_grpc(settings, peer.served()))
            addresses += running.addresses
        url = await stack.enter_async_context(gateway(dict.fromkeys(fronts.PEERS, ",".join(addresses)), Timing()))
        yield await stack.enter_async_context(aiohttp.ClientSession(url))


async def list_agents(http: aiohttp.ClientSession) -> int:
    async with http.get("/api/agents") as response:
        await response.read()
        return response.status


async def send_query(http: aiohttp.ClientSession) -> int:
    """Return the status of a query, or 0 if its stream has no end."""
    async with http.post("/api/query", json={"message": "hi"}) as response:
        body = await response.read()
        return response.status if response.status != 200 or body.endswith(b"[DONE]\n\n") else 0


async def test_calls_are_spread_over_all_replicas_in_turn(tmp_path: Path) -> None:
    peers = [Peer([LIST]) for _ in range(3)]
    async with serving_replicas(tmp_path, peers) as http:
        async with asyncio.timeout(50):
            while not all(peer.heard for peer in peers):
                assert await list_agents(http) == 200
        call_counts = [len(peer.heard) for peer in peers]
        for _ in range(9):
            assert await list_agents(http) == 200
    assert [len(peer.heard) - count for peer, count in zip(peers, call_counts, strict=True)] == [3, 3, 3]


@pytest.mark.parametrize(("ask", "answer"), [(list_agents, [LIST]), (send_query, EVENTS)])
async def test_a_call_refused_by_a_stopping_replica_is_repeated_at_another(
    ask: Ask, answer: Sequence[Any], tmp_path: Path
) -> None:
    stopping, other = Peer([STOPPING]), Peer(answer)
    async with serving_replicas(tmp_path, [stopping, other]) as http:
        while not (stopping.heard and other.heard):  # while only one is connected, there is no other to call
            await ask(http)
        refused_before, answered_before = len(stopping.heard), len(other.heard)
        assert set(await asyncio.gather(*(ask(http) for _ in range(CALLS)))) == {200}
    assert len(stopping.heard) > refused_before
    assert len(other.heard) - answered_before == CALLS


@pytest.mark.parametrize("ask", [list_agents, send_query])
async def test_a_refused_call_is_repeated_by_the_facade_only(ask: Ask, tmp_path: Path) -> None:
    peers = [Peer([STOPPING]), Peer([STOPPING]), Peer([STOPPING])]
    async with serving_replicas(tmp_path, peers) as http:
        assert await ask(http) == 503
    assert sum(len(peer.heard) for peer in peers) == 3  # the facade calls one more replica


@pytest.mark.parametrize("ask", [list_agents, send_query])
async def test_a_call_that_fails_for_another_reason_is_not_repeated(ask: Ask, tmp_path: Path) -> None:
    peer = Peer([ProviderUnavailable("gone")])
    async with serving_replicas(tmp_path, [peer]) as http:
        assert await ask(http) == 503
    assert len(peer.heard) == 1


async def test_a_stream_that_has_started_is_not_repeated(tmp_path: Path) -> None:
    peer = Peer([ANSWER, STOPPING])
    async with serving_replicas(tmp_path, [peer]) as http:
        assert await send_query(http) == 0
    assert len(peer.heard) == 1


async def test_restarting_the_replicas_one_by_one_fails_no_call(tmp_path: Path) -> None:
    statuses: list[int] = []
    is_over = asyncio.Event()
    addresses = [f"unix:{tmp_path}/{number}" for number in range(2)]

    async def keep_asking(http: aiohttp.ClientSession) -> None:
        while not is_over.is_set():
            statuses.append(await list_agents(http))
            statuses.append(await send_query(http))

    async def start(replica: AsyncExitStack, address: str) -> None:
        settings = ServerSettings(listen=address, drain_s=1)
        services = make_peer_services(Script(query=[*opening(), ANSWER_S, *answering("a")[3:]]), ScriptedMemory())
        await replica.enter_async_context(serving_grpc(settings, services))
        await asyncio.sleep(RECONNECT_S)

    async with asyncio.timeout(200), AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(AsyncExitStack()) for _ in addresses]
        for replica, address in zip(replicas, addresses, strict=True):
            await start(replica, address)
        url = await stack.enter_async_context(gateway(dict.fromkeys(fronts.PEERS, ",".join(addresses)), Timing()))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(keep_asking(http))
            for replica, address in zip(replicas, addresses, strict=True):
                await replica.aclose()
                await start(replica, address)
            while len(statuses) <= CALLS:  # on a busy machine
                await asyncio.sleep(0.01)
            is_over.set()
    assert set(statuses) == {200}
