"""deploy/gateway before several replicas: calls go to all of them, and one that is stopped costs nobody a call."""

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
from tests.support.facade.scripted import CHAT, RUN, Script, ScriptedMemory, answering, complete, opening, served

pytestmark = pytest.mark.usefixtures("h2")

CALLS = 60

RECONNECT_S = 0.5
"""For a gateway to find a replica that is there again; it tries after 0.1 s and then more rarely."""

ANSWER_S = 0.2
"""A run's time: a replica that is told to stop is at work."""

Ask: TypeAlias = Callable[[aiohttp.ClientSession], Awaitable[int]]

ANSWER = agent_pb2.AgentDelta(
    seq=1, timestamp=1, run_start=agent_pb2.RunStart(run_id=RUN, chat_id=CHAT, agent_key="helper")
)
EVENTS = (ANSWER, complete(2))
LIST = agent_pb2.ListAgentsResponse()
STOPPING = Overloaded("the service is being stopped; try again", retry_after_s=0)


@asynccontextmanager
async def before(folder: Path, peers: Sequence[Peer]) -> AsyncGenerator[aiohttp.ClientSession]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(200))
        addresses: list[str] = []
        for number, peer in enumerate(peers):
            settings = ServerSettings(listen=f"unix:{folder}/{number}", drain_s=0)
            running = await stack.enter_async_context(serving_grpc(settings, peer.served()))
            addresses += running.addresses
        url = await stack.enter_async_context(gateway(dict.fromkeys(fronts.PEERS, ",".join(addresses)), Timing()))
        yield await stack.enter_async_context(aiohttp.ClientSession(url))


async def asked(http: aiohttp.ClientSession) -> int:
    async with http.get("/api/agents") as response:
        await response.read()
        return response.status


async def queried(http: aiohttp.ClientSession) -> int:
    """The status of a query whose stream has its end."""
    async with http.post("/api/query", json={"message": "hi"}) as response:
        body = await response.read()
        return response.status if response.status != 200 or body.endswith(b"[DONE]\n\n") else 0


async def test_calls_go_to_all_replicas_in_turn(tmp_path: Path) -> None:
    peers = [Peer([LIST]) for _ in range(3)]
    async with before(tmp_path, peers) as http:
        async with asyncio.timeout(50):
            while not all(peer.heard for peer in peers):
                assert await asked(http) == 200
        heard = [len(peer.heard) for peer in peers]
        for _ in range(9):
            assert await asked(http) == 200
    assert [len(peer.heard) - count for peer, count in zip(peers, heard, strict=True)] == [3, 3, 3]


@pytest.mark.parametrize(("ask", "answer"), [(asked, [LIST]), (queried, EVENTS)])
async def test_what_a_stopping_replica_refuses_is_asked_of_another(
    ask: Ask, answer: Sequence[Any], tmp_path: Path
) -> None:
    stopping, other = Peer([STOPPING]), Peer(answer)
    async with before(tmp_path, [stopping, other]) as http:
        while not (stopping.heard and other.heard):  # as long as one is reached alone, there is no other to be asked
            await ask(http)
        refused, answered = len(stopping.heard), len(other.heard)
        assert set(await asyncio.gather(*(ask(http) for _ in range(CALLS)))) == {200}
    assert len(stopping.heard) > refused
    assert len(other.heard) - answered == CALLS


@pytest.mark.parametrize("ask", [asked, queried])
async def test_a_refused_call_is_made_again_by_the_facade_alone(ask: Ask, tmp_path: Path) -> None:
    peers = [Peer([STOPPING]), Peer([STOPPING]), Peer([STOPPING])]
    async with before(tmp_path, peers) as http:
        assert await ask(http) == 503
    assert sum(len(peer.heard) for peer in peers) == 3  # the facade asks one more replica


@pytest.mark.parametrize("ask", [asked, queried])
async def test_a_call_that_failed_otherwise_is_not_made_again(ask: Ask, tmp_path: Path) -> None:
    peer = Peer([ProviderUnavailable("gone")])
    async with before(tmp_path, [peer]) as http:
        assert await ask(http) == 503
    assert len(peer.heard) == 1


async def test_a_stream_that_has_begun_is_not_made_again(tmp_path: Path) -> None:
    peer = Peer([ANSWER, STOPPING])
    async with before(tmp_path, [peer]) as http:
        assert await queried(http) == 0
    assert len(peer.heard) == 1


async def test_replicas_restart_one_after_the_other_and_no_call_fails(tmp_path: Path) -> None:
    statuses: list[int] = []
    over = asyncio.Event()
    addresses = [f"unix:{tmp_path}/{number}" for number in range(2)]

    async def keep_asking(http: aiohttp.ClientSession) -> None:
        while not over.is_set():
            statuses.append(await asked(http))
            statuses.append(await queried(http))

    async def start(replica: AsyncExitStack, address: str) -> None:
        settings = ServerSettings(listen=address, drain_s=1)
        services = served(Script(query=[*opening(), ANSWER_S, *answering("a")[3:]]), ScriptedMemory())
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
            over.set()
    assert set(statuses) == {200}
