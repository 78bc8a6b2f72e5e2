"""During a flood of one tenant's queries, another tenant's query is among the first, not after all of them."""

import asyncio
import io
import json
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from headrace.client import Client
from headrace.errors import QueueFull
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, tools_pb2
from services.facade.requests.body import LARGE_BODIES_MAX
from services.runtime.auth.identity import Identity
from services.runtime.capacity import RETRY_AFTER_S
from tests.support.contract import RPCS
from tests.support.orchestrator.steps import call, content, finish
from tests.support.orchestrator.suite import REACT
from tests.support.raw_http import sending
from tests.support.tenants.suite import ADA, BOB, KEYS, TenantSuite, serving_tenants
from tests.support.tiers import check_first

FLOOD = 400
"""More queries than the orchestrator has places for."""

BEFORE_MAX = FLOOD // 2
"""Queries of the flood that may start before the other tenant's, since they arrived earlier. If tenants did not take
turns, it would be the last."""


async def ask_over_http(http: aiohttp.ClientSession, key: str, message: str) -> None:
    body = {"message": message, "agentKey": "plain"}
    async with http.post("/api/query", json=body, headers={"X-API-Key": key}) as response:
        await response.read()


async def ask_over_grpc(client: Client, message: str) -> None:
    async with client.ask(message, agent_key="plain") as deltas:
        async for _ in deltas:
            pass


def count_before(suite: TenantSuite, message: str) -> int:
    texts = [request.messages[-1].content[0].text for request in suite.llm.requests]
    return texts.index(message)


@pytest.mark.parametrize("way", check_first(["http", "grpc"]))
async def test_a_query_during_another_tenants_flood_is_among_the_first(tmp_path: Path, way: str) -> None:
    async with (
        asyncio.timeout(300),
        serving_tenants(tmp_path, runs_max=4 * FLOOD) as suite,
        suite.connect(KEYS[ADA]) as ada,
        suite.connect(KEYS[BOB]) as bob,
        aiohttp.ClientSession(suite.url, connector=aiohttp.TCPConnector(limit=0)) as flooding,
        aiohttp.ClientSession(suite.url) as http,
        asyncio.TaskGroup() as group,
    ):
        await ask_over_grpc(ada, "warm up")
        await ask_over_grpc(bob, "warm up")
        # Over an open connection: a new one might wait seconds in the kernel's full accept queue.
        await ask_over_http(http, KEYS[BOB], "warm up")
        for _ in range(FLOOD):
            group.create_task(
                ask_over_http(flooding, KEYS[ADA], "flood") if way == "http" else ask_over_grpc(ada, "flood")
            )
        await asyncio.sleep(0)
        await (ask_over_http(http, KEYS[BOB], "mine") if way == "http" else ask_over_grpc(bob, "mine"))
        before = count_before(suite, "mine")
    assert before <= BEFORE_MAX


LOCATE = agent_pb2.ClientTool(name="locate", description="Where the user is", parameters='{"type":"object"}')


async def ask_and_leave(suite: TenantSuite) -> None:
    """Leave a run of Ada's that waits for her."""
    stub = agent_pb2_grpc.AgentServiceStub(suite.channels["AgentService"])
    request = agent_pb2.QueryRequest(message="where?", agent_key="asking", client_tools=[LOCATE])
    async with reading(stub.Query(request, metadata=(("x-api-key", KEYS[ADA]),))) as deltas:
        async for delta in deltas:
            if delta.HasField("tool_start"):
                return


async def test_waiting_runs_of_one_tenant_leave_places_for_another(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "asking.json").write_text(json.dumps(REACT | {"toolConfig": {}}))
    async with asyncio.timeout(200), serving_tenants(tmp_path, runs_max=4) as suite:
        suite.llm.reply = lambda request: (
            [*call("locate"), *finish("tool_calls")] if request.tools else [*content("hello"), *finish()]
        )
        for _ in range(2):
            await ask_and_leave(suite)
        with pytest.raises(QueueFull, match="as many live runs as are left") as caught, rpc_errors():
            await ask_and_leave(suite)
        assert caught.value.retry_after_s == RETRY_AFTER_S
        async with suite.connect(KEYS[BOB]) as bob, bob.ask("hello", agent_key="plain") as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        headers = {"X-API-Key": KEYS[ADA]}
        async with suite.http.post(
            "/api/query", json={"message": "x", "agentKey": "plain"}, headers=headers
        ) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (429, "5")
            assert (await refused.json())["error"]["code"] == "QUEUE_FULL"


async def test_unfinished_large_bodies_of_one_tenant_leave_places_for_another(tmp_path: Path) -> None:
    size_bytes, place = 5 * 1024 * 1024, "/v1/chat/completions"
    body = json.dumps({"model": "plain", "messages": [{"role": "user", "content": "hi"}]}).ljust(size_bytes)
    head = f"POST {place} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEYS[ADA]}\r\nContent-Type: application/json\r\n"
    async with asyncio.timeout(300), serving_tenants(tmp_path) as suite, AsyncExitStack() as stack:
        unfinished_request = f"{head}Content-Length: {size_bytes}\r\n\r\n".encode()
        readers = [
            await stack.enter_async_context(sending(suite.url, unfinished_request)) for _ in range(LARGE_BODIES_MAX + 1)
        ]
        refusals = [asyncio.create_task(reader.readline()) for reader in readers]
        # Once one body is refused, all places of Ada's tenant are taken.
        await asyncio.wait(refusals, return_when=asyncio.FIRST_COMPLETED)
        headers = {"X-API-Key": KEYS[BOB], "Content-Type": "application/json"}
        async with suite.http.post(place, data=io.BytesIO(body.encode()), headers=headers) as answer:
            assert (answer.status, (await answer.json())["choices"][0]["message"]["content"]) == (200, "one two")
        for refusal in refusals:
            refusal.cancel()


async def test_commands_of_one_tenant_leave_places_for_another(tmp_path: Path) -> None:
    async with asyncio.timeout(300), serving_tenants(tmp_path, commands_max=2) as suite:
        places = {who: await suite.ask(who, "hello") for who in (ADA, BOB)}

        async def execute(who: Identity, call_id: str, command: str) -> str:
            chat_id, run_id = places[who]
            request = tools_pb2.ExecuteRequest(chat_id=chat_id, run_id=run_id, tool_call_id=call_id, tool_name="_bash_")
            request.arguments = json.dumps({"command": command})
            return (await suite.call(RPCS["ToolService.Execute"], who, [request])).code

        workspace = tmp_path / "data" / "workspaces" / places[ADA][0]
        async with asyncio.TaskGroup() as group:
            group.create_task(execute(ADA, "c_1", "touch up; while [ ! -e go ]; do sleep 0.01; done"))
            while not (workspace / "up").exists():
                await asyncio.sleep(0.01)
            assert await execute(ADA, "c_2", "echo") == "UNAVAILABLE"
            assert await execute(BOB, "c_1", "echo") == "OK"
            (workspace / "go").touch()
