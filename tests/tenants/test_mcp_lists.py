"""An MCP server that lists tools only for users who have authorized Headrace: no user gets another user's list."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from headrace.v1 import agent_pb2, llm_pb2, tools_pb2
from services.runtime.auth.identity import Identity
from tests.support.contract import RPCS
from tests.support.orchestrator.steps import content, finish
from tests.support.tenants.suite import ADA, BOB, KEYS, MODEL, OLGA, TenantSuite, fresh, serving_tenants
from tests.support.tools.mcp_http import http_server
from tests.tools.mcp_client.oauth_app import Authority, make_protected_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

REDIRECT = "http://127.0.0.1:8080/console/authorized.html"
AGENTS: dict[str, dict[str, Any]] = {
    "listing": {"toolConfig": {"backends": ["s__whoami", "s__of_ada"]}},
    "open": {"toolConfig": {"backends": ["@enabled"]}},
}


@dataclass
class World:
    suite: TenantSuite
    authority: Authority

    async def list_tools(self, who: Identity) -> set[str]:
        """Return names of the server's tools."""
        request = tools_pb2.ListToolsRequest()
        outcome = await self.suite.call(RPCS["ToolService.ListTools"], who, [request], as_client=False)
        assert outcome.code == "OK", outcome
        return {tool.name for tool in outcome.reply.tools if tool.name.startswith("s__")}

    async def execute(self, who: Identity, tool: str, chat_id: str) -> tools_pb2.ToolOutcome:
        request = tools_pb2.ExecuteRequest(
            run_id=fresh(), chat_id=chat_id, tool_call_id="1", effect_key=fresh(), tool_name=tool
        )
        outcome = await self.suite.call(RPCS["ToolService.Execute"], who, [request], as_client=False)
        assert outcome.code == "OK", outcome
        return outcome.reply[-1].result

    async def ask(self, who: Identity, agent: str) -> tuple[str, set[str]]:
        """Ask an agent; return the chat, and the names of the server's tools in the model's request."""
        requests: list[llm_pb2.ChatRequest] = []

        def reply(request: llm_pb2.ChatRequest) -> list[Any]:
            requests.append(request)
            return [*content("done"), *finish()]

        self.suite.llm.reply = reply
        request = agent_pb2.QueryRequest(message="go", agent_key=agent)
        outcome = await self.suite.call(RPCS["AgentService.Query"], who, [request])
        assert outcome.code == "OK", outcome
        shown = {tool.name for tool in requests[0].tools if tool.name.startswith("s__")}
        return next(event.run_start.chat_id for event in outcome.reply if event.HasField("run_start")), shown

    async def authorize(self, who: Identity) -> None:
        self.authority.person = who.user
        chat_id, _ = await self.ask(who, "plain")
        [need] = (await self.execute(who, "s__connect", chat_id)).asks
        async with httpx2.AsyncClient() as browser:
            sent_back = httpx2.URL((await browser.get(need.url)).headers["location"])
        request = tools_pb2.CompleteAuthorizationRequest(state=sent_back.params["state"], code=sent_back.params["code"])
        outcome = await self.suite.call(RPCS["ToolService.CompleteAuthorization"], who, [request])
        assert outcome.code == "OK", outcome

    async def revoke(self, who: Identity) -> None:
        request = tools_pb2.RevokeAuthorizationRequest(server="s")
        outcome = await self.suite.call(RPCS["ToolService.RevokeAuthorization"], who, [request])
        assert outcome.code == "OK", outcome


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder, authority = tmp_path_factory.mktemp("lists"), Authority()
    async with http_server(make_app=partial(make_protected_app, authority)) as http:
        server = {"url": http.url, "oauth": {"redirectUrl": REDIRECT}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"s": server}}))
        (folder / "agents").mkdir()
        for key, agent in AGENTS.items():
            whole = {"mode": "REACT", "modelConfig": MODEL, "react": {"systemPrompt": "Go."}} | agent
            (folder / "agents" / f"{key}.json").write_text(json.dumps(whole))
        async with serving_tenants(folder) as suite:
            yield World(suite, authority)


CONNECT = {"s__connect"}


def tools_of(who: Identity) -> set[str]:
    return {"s__connect", "s__whoami", f"s__of_{who.user}"}


async def test_each_user_gets_the_tools_listed_with_their_own_token(world: World) -> None:
    await world.authorize(ADA)
    assert await world.list_tools(ADA) == tools_of(ADA)
    for other in (BOB, OLGA):  # A user of another tenant, and one of Ada's.
        assert await world.list_tools(other) == CONNECT

    chat_id, tools_offered = await world.ask(BOB, "open")
    assert tools_offered == CONNECT
    call_outcome = await world.execute(BOB, "s__of_ada", chat_id)
    assert (call_outcome.ok, len(call_outcome.asks), "ada" in call_outcome.result) == (False, 1, False), (
        "bob is asked to authorize"
    )

    await world.authorize(BOB)
    assert (await world.execute(BOB, "s__whoami", chat_id)).result == "bob"
    missing = await world.suite.call(
        RPCS["ToolService.GetTool"], BOB, [tools_pb2.GetToolRequest(tool_name="s__of_ada")]
    )
    assert missing.reason == "NOT_FOUND"
    assert [await world.list_tools(who) for who in (ADA, BOB)] == [tools_of(ADA), tools_of(BOB)]

    await world.revoke(ADA)
    assert [await world.list_tools(who) for who in (ADA, BOB)] == [CONNECT, tools_of(BOB)]
    await world.revoke(BOB)


async def test_a_models_request_has_the_tool_list_of_the_runs_user(world: World) -> None:
    await world.authorize(ADA)
    versions: set[tuple[str, str]] = set()
    for who, agent, expected in [
        (ADA, "open", tools_of(ADA)),
        (BOB, "open", CONNECT),
        (ADA, "listing", tools_of(ADA) - CONNECT),
        (BOB, "listing", CONNECT),  # Instead of the tools in its definition.
    ]:
        _, tools_offered = await world.ask(who, agent)
        assert tools_offered == expected, (who, agent)
        request = agent_pb2.ListAgentVersionsRequest(agent_key=agent)
        listed = await world.suite.call(RPCS["AgentService.ListAgentVersions"], who, [request])
        versions |= {(agent, version.hash) for version in listed.reply.versions}
    assert len(versions) == len(AGENTS), "a version, which all tenants share, contains no user's list"
    for agent in AGENTS:
        request = agent_pb2.GetAgentVersionRequest(agent_key=agent, version=1)
        stored_version = await world.suite.call(RPCS["AgentService.GetAgentVersion"], BOB, [request])
        assert (stored_version.code, "Only ada" in str(stored_version.reply)) == ("OK", False)
    await world.revoke(ADA)


PAGE_SIZE = 50
"""Default number of schedules on a page."""


async def test_a_client_lists_all_schedules_of_its_user(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite, suite.connect(KEYS[ADA]) as client:
        created = [await client.create_schedule("plain", "hello", cron="0 0 1 1 *") for _ in range(PAGE_SIZE + 1)]
        assert [schedule.schedule_id for schedule in await client.schedules()] == [
            schedule.schedule_id for schedule in created
        ]
