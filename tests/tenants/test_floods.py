"""Many queries of one tenant at one moment: another tenant's comes in among the first of them, not behind them all."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from headrace.client import Client
from tests.support.tenants.suite import ADA, BOB, KEYS, TenantSuite, serving_tenants
from tests.support.tiers import check_first

FLOOD = 400
"""More than wait for a place of the orchestrator's at a time."""

BEFORE_MAX = FLOOD // 2
"""Queries of the flood that are begun before the other's: what has come in while that was on its way. Without turns it
would be the last."""


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
async def test_a_query_beside_a_flood_begins_among_the_first(tmp_path: Path, way: str) -> None:
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
        # Over a connection that stands: a new one might wait seconds, behind more than the kernel has room for.
        await ask_over_http(http, KEYS[BOB], "warm up")
        for _ in range(FLOOD):
            group.create_task(
                ask_over_http(flooding, KEYS[ADA], "flood") if way == "http" else ask_over_grpc(ada, "flood")
            )
        await asyncio.sleep(0)
        await (ask_over_http(http, KEYS[BOB], "mine") if way == "http" else ask_over_grpc(bob, "mine"))
        before = count_before(suite, "mine")
    assert before <= BEFORE_MAX
