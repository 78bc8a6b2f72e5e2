"""Agents of tenants: what the operator grants, and definitions that keep to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from headrace.client import Client
from headrace.v1 import agent_pb2
from tests.orchestrator.conftest import MODEL, House, Open, Step, as_json
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


def grant(it: House, grants: dict[str, Any] = GRANTS) -> None:
    """Have the operator's file say this; JSON is YAML."""
    (it.config.config_dir / "tenant-agents.yaml").write_text(json.dumps(grants))


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
    """Return when the house knows the tool: what it was told before holds for a while."""

    async def is_listed() -> bool:
        definition = make(toolConfig={"backends": [name]})
        return not (await client.validate_agent(definition, for_tenant=True)).problems

    await until(is_listed)


async def run(client: Client, key: str = "own", **fields: Any) -> list[Event]:
    async with client.ask("hello", agent_key=key, **fields) as deltas:
        return [as_json(delta) async for delta in deltas]


@asynccontextmanager
async def tenants(house: Open, *turns: list[Step], **fields: Any) -> AsyncGenerator[tuple[House, Client, Client]]:
    """A house with its grants, and clients of two tenants."""
    async with AsyncExitStack() as stack:
        it: House = await stack.enter_async_context(house(*turns, keys=KEYS, **fields))
        grant(it)
        bob = await stack.enter_async_context(Client(it.address, token="key-of-bob", reattach_s=0))
        await wait_for_grants(it.client)
        yield it, it.client, bob
