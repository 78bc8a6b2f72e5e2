"""A tenant's own agent on every face and in schedules is visible to its tenant only."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from services.runtime.auth.identity import Identity
from tests.support.tenants.suite import ADA, BOB, KEYS, MODEL, TenantSuite, serving_tenants

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = {
    "key": "secretary",
    "description": "Keeps the books of acme.",
    "publish": ["a2a", "ag-ui", "mcp"],
    "mode": "ONESHOT",
    "modelConfig": MODEL,
    "plain": {"systemPrompt": "Acme's words."},
}
GRANTS = {"grants": [{"tenants": ["*"], "models": ["scripted/m"]}]}


async def send(
    suite: TenantSuite, who: Identity, verb: str, path: str, body: Any = None, **headers: str
) -> tuple[int, str]:
    headers |= {"Authorization": f"Bearer {KEYS[who]}", "Accept": "application/json, text/event-stream"}
    async with suite.http.request(verb, path, json=body, headers=headers) as response:
        return response.status, await response.text()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TenantSuite]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "tenant-agents.yaml").write_text(json.dumps(GRANTS))
    async with serving_tenants(folder) as found:
        status, text = await send(found, ADA, "POST", "/api/agent", {"definition": json.dumps(OWN)})
        assert (status, json.loads(text)["data"]["isStored"]) == (200, True), text
        yield found


MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

LISTS = [
    ("GET", "/api/agents", None),
    ("GET", "/v1/models", None),
    ("GET", "/a2a", None),
    ("GET", "/agui", None),
    ("POST", "/mcp", MCP),
    ("GET", "/api/agents/stored", None),
    ("GET", "/api/operator/limits", None),
]


@pytest.mark.parametrize(("verb", "path", "body"), LISTS)
async def test_a_tenants_agent_is_listed_only_for_its_tenant(
    verb: str, path: str, body: Any, suite: TenantSuite
) -> None:
    status, own = await send(suite, ADA, verb, path, body)
    assert status == 200, own
    assert ("secretary" in own) == (path != "/api/operator/limits")
    status, others = await send(suite, BOB, verb, path, body)
    assert status == 200, others
    assert "secretary" not in others
    assert "acme" not in others.casefold()


READS = [
    ("GET", "/api/agent?agentKey=secretary", None),
    ("GET", "/api/agent/versions?agentKey=secretary", None),
    ("GET", "/api/agent/version?agentKey=secretary&version=1", None),
    ("GET", "/api/agent/diff?agentKey=secretary&fromVersion=1&toVersion=1", None),
    ("GET", "/api/agent/definition?agentKey=secretary&version=1", None),
    ("GET", "/v1/models/secretary", None),
    ("GET", "/a2a/secretary/.well-known/agent-card.json", None),
    ("GET", "/agui/secretary", None),
    ("POST", "/api/query", {"agentKey": "secretary", "message": "hi", "stream": False}),
    ("POST", "/v1/chat/completions", {"model": "secretary", "messages": [{"role": "user", "content": "hi"}]}),
]


@pytest.mark.parametrize(("verb", "path", "body"), READS)
async def test_a_tenants_agent_is_not_found_by_others(verb: str, path: str, body: Any, suite: TenantSuite) -> None:
    status, own = await send(suite, ADA, verb, path, body)
    assert status == 200, own
    status, others = await send(suite, BOB, verb, path, body)
    assert status == 404, others
    assert "Acme" not in others


async def test_another_tenant_can_neither_change_nor_delete_a_tenants_agent(suite: TenantSuite) -> None:
    status, _ = await send(suite, BOB, "DELETE", "/api/agent?agentKey=secretary")
    assert status == 404
    bobs_agent = OWN | {"plain": {"systemPrompt": "Globex' words."}}
    status, text = await send(suite, BOB, "POST", "/api/agent", {"definition": json.dumps(bobs_agent)})
    assert status == 200, text
    await send(suite, ADA, "POST", "/api/query", {"agentKey": "secretary", "message": "hi", "stream": False})
    assert suite.llm.requests[-1].messages[0].content[0].text.startswith("Acme's words.")
    status, _ = await send(suite, BOB, "DELETE", "/api/agent?agentKey=secretary")
    assert status == 200
    assert (await send(suite, ADA, "GET", "/api/agent?agentKey=secretary"))[0] == 200


async def test_a_schedule_of_its_tenant_runs_a_tenants_agent(suite: TenantSuite) -> None:
    schedule = {"agentKey": "secretary", "message": "books?", "cron": "0 9 1 1 *"}
    status, text = await send(suite, ADA, "POST", "/api/schedules", schedule)
    assert status == 200, text
    schedule_id = json.loads(text)["data"]["scheduleId"]
    requests_before = len(suite.llm.requests)
    status, text = await send(suite, ADA, "POST", "/api/schedule/trigger", {"scheduleId": schedule_id})
    assert status == 200, text
    async with asyncio.timeout(100):
        while len(suite.llm.requests) == requests_before:
            await asyncio.sleep(0.05)
    assert suite.llm.requests[-1].messages[0].content[0].text.startswith("Acme's words.")
