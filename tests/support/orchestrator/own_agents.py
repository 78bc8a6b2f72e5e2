"""Agents of tenants: the operator's grants, definitions within them, and changes of them."""

import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from headrace.client import Client
from headrace.v1 import agent_pb2, llm_pb2
from tests.support.local_client import open_client
from tests.support.orchestrator import plans
from tests.support.orchestrator.events import ask_for, ask_until, read, run_of
from tests.support.orchestrator.runs import unfinished_runs
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import Step, answer, call_tool, content
from tests.support.orchestrator.suite import MODEL, Serve, Suite
from tests.support.order import Event
from tests.support.waiting import until

KEYS = {"key-of-ada": "acme/ada - ask,answer,publish,operate", "key-of-bob": "bolt/bob - ask,answer,publish,operate"}

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
    """Write the operator's file of grants, as JSON, which is valid YAML."""
    (suite.config.config_dir / "tenant-agents.yaml").write_text(json.dumps(grants))


async def put(client: Client, definition: str, **fields: Any) -> agent_pb2.Agent:
    reply = await client.put_agent(definition, **fields)
    assert reply.is_stored, reply.problems
    return reply.agent


async def wait_for_grants(client: Client) -> None:
    """Wait until the operator's file of grants has been read."""

    async def has_come() -> bool:
        found = (await client.validate_agent(make("probe"), for_tenant=True)).problems
        return not any("granted" in problem.rule for problem in found)

    await until(has_come)


async def wait_for_tool(client: Client, name: str) -> None:
    """Wait until the suite knows the tool; lists of tools are cached for a while."""

    async def is_listed() -> bool:
        definition = make(toolConfig={"backends": [name]})
        return not (await client.validate_agent(definition, for_tenant=True)).problems

    await until(is_listed)


async def wait_for_owner(client: Client, key: str, owner: str = "") -> None:
    """Wait until the agent has this owner; empty: until it does not exist."""

    async def is_so() -> bool:
        return {agent.key: agent.owner for agent in await client.agents()}.get(key, "") == owner

    await until(is_so)


async def run(client: Client, key: str = "own", **fields: Any) -> list[Event]:
    return await ask_for(client, agent_key=key, **fields)


@asynccontextmanager
async def tenants(serve: Serve, *turns: list[Step], **fields: Any) -> AsyncGenerator[tuple[Suite, Client, Client]]:
    """Start a suite with GRANTS; yield it with clients of two tenants."""
    async with AsyncExitStack() as stack:
        suite: Suite = await stack.enter_async_context(serve(*turns, keys=KEYS, **fields))
        grant(suite)
        bob = await stack.enter_async_context(open_client(suite.address, token="key-of-bob"))
        await wait_for_grants(suite.client)
        yield suite, suite.client, bob


ANSWER = answer("Done.")


class Model:
    """A scripted model that, depending on the message, opens a form, works until `may_end`, or answers."""

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


async def start_in_every_state(suite: Suite, client: Client, key: str) -> dict[str, list[Event]]:
    """Start runs of a `Model` that wait for a person, are running and are queued; return the events so far by run."""
    chats = str(uuid.uuid4()), str(uuid.uuid4())
    waiting = await ask_until(client, "tool.end", "wait", agent_key=key, chat_id=chats[0])
    working = await ask_until(client, "content.delta", "work", agent_key=key, chat_id=chats[1])
    queued = await ask_until(client, "request.query", "then", agent_key=key, chat_id=chats[1])
    events_by_run = {run_of(waiting): waiting, run_of(working): working}
    [queued_id] = {run.run_id for run in await unfinished_runs(suite)} - {*events_by_run}
    return events_by_run | {queued_id: queued}


async def check_first_version(client: Client, events_by_run: dict[str, list[Event]], cancelled: str) -> None:
    """Check that the runs end, with the agent's first version."""
    for run_id, events in events_by_run.items():
        events_after = await read(client, run_id, events[-1]["seq"])
        assert events_after[-1]["type"] == ("run.cancel" if run_id == cancelled else "run.complete")
        assert "run.notice" not in {event["type"] for event in events_after}
        assert (await client.run(run_id)).agent_version == 1
