"""Agents of tenants: what the operator grants, definitions that keep to it, and changes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from headrace.client import Client
from headrace.v1 import agent_pb2, llm_pb2
from tests.support.local_client import open_client
from tests.support.orchestrator import plans
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import Step, answer, call_tool, content
from tests.support.orchestrator.suite import MODEL, Serve, Suite
from tests.support.order import Event

KEYS = {
    "key-of-ada": "acme/ada - ask,answer,publish,operate",
    "key-of-bob": "bolt/bob - ask,answer,publish,operate",
}

GRANTS: dict[str, Any] = {
    "grants": [
        {"tenants": ["acme"], "models": ["scripted/m"], "tools": ["look", "form", "free_*"], "subagents": ["oneshot"]},
        {"tenants": ["bolt"], "models": ["scripted/*"]},
    ]
}

OWN: dict[str, Any] = {
    "mode": "REACT",
    "modelConfig": MODEL,
    "toolConfig": {"backends": ["look"]},
    "react": {"systemPrompt": "Own."},
}


def make(key: str = "own", **changes: Any) -> str:
    return json.dumps(OWN | {"key": key} | changes)


def grant(suite: Suite, grants: dict[str, Any] = GRANTS) -> None:
    """Have the operator's file say this; JSON is YAML."""
    (suite.config.config_dir / "tenant-agents.yaml").write_text(json.dumps(grants))


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(100):
        while not await is_so():
            await asyncio.sleep(0.02)


async def put(client: Client, definition: str, **fields: Any) -> agent_pb2.Agent:
    reply = await client.put_agent(definition, **fields)
    assert reply.is_stored, reply.problems
    return reply.agent


async def wait_for_grants(client: Client, *, granted: bool = True) -> None:
    """Return when the operator's file has been read."""

    async def has_come() -> bool:
        found = (await client.validate_agent(make("probe"), for_tenant=True)).problems
        return any("granted" in problem.rule for problem in found) != granted

    await until(has_come)


async def wait_for_tool(client: Client, name: str) -> None:
    """Return when the suite knows the tool: what it was told before holds for a while."""

    async def is_listed() -> bool:
        definition = make(toolConfig={"backends": [name]})
        return not (await client.validate_agent(definition, for_tenant=True)).problems

    await until(is_listed)


async def run(client: Client, key: str = "own", **fields: Any) -> list[Event]:
    async with client.ask("hello", agent_key=key, **fields) as deltas:
        return [as_json(delta) async for delta in deltas]


@asynccontextmanager
async def tenants(serve: Serve, *turns: list[Step], **fields: Any) -> AsyncGenerator[tuple[Suite, Client, Client]]:
    """A suite with its grants, and clients of two tenants."""
    async with AsyncExitStack() as stack:
        suite: Suite = await stack.enter_async_context(serve(*turns, keys=KEYS, **fields))
        grant(suite)
        bob = await stack.enter_async_context(open_client(suite.address, token="key-of-bob"))
        await wait_for_grants(suite.client)
        yield suite, suite.client, bob


ANSWER = answer("Done.")


class Model:
    """Waits with a form, works until it `may_end`, or answers, by what it is asked."""

    def __init__(self, suite: Suite) -> None:
        self.may_end = False
        suite.tools.tools.append(tool("form", "frontend"))
        suite.llm.reply = self._reply

    def _reply(self, request: llm_pb2.ChatRequest) -> list[Step]:
        asked = plans.last_text(request)
        if asked.startswith("wait"):
            return call_tool("form")
        if asked.startswith("work") and not self.may_end:
            return [*content("Hm."), 3600.0]
        return ANSWER


def change_agent(suite: Suite, change: str) -> None:
    """Change the prompt or the mode of agent `react`, or take its file away."""
    file = suite.agents / "react.json"
    agent = json.loads(file.read_text()) | {"description": "changed"}
    if change == "prompt":
        file.write_text(json.dumps(agent | {"react": {"systemPrompt": "Be brief."}, "budget": {"maxModelCalls": 1}}))
    elif change == "mode":
        file.write_text(json.dumps(agent | {"mode": "ONESHOT", "plain": {}}))
    else:
        file.unlink()
