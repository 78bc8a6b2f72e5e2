"""Runs of a tenant that nobody attends to keep no other tenant out."""

import asyncio
import json
from pathlib import Path

import pytest

from headrace.errors import QueueFull
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.capacity import RETRY_AFTER_S
from tests.support.orchestrator.steps import call, content, finish
from tests.support.orchestrator.suite import REACT
from tests.support.tenants.suite import ADA, BOB, KEYS, TenantSuite, serving_tenants

LOCATE = agent_pb2.ClientTool(name="locate", description="Where the user is", parameters='{"type":"object"}')


async def ask_and_leave(suite: TenantSuite) -> None:
    """A run of Ada's that waits for her."""
    stub = agent_pb2_grpc.AgentServiceStub(suite.channels["AgentService"])
    request = agent_pb2.QueryRequest(message="where?", agent_key="asking", client_tools=[LOCATE])
    async with reading(stub.Query(request, metadata=(("x-api-key", KEYS[ADA]),))) as deltas:
        async for delta in deltas:
            if delta.HasField("tool_start"):
                return


async def test_runs_that_wait_for_one_tenants_people_leave_room_for_another_tenant(tmp_path: Path) -> None:
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
