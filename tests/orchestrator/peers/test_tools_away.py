"""The tools service is away for a while, or for good: runs wait for it, and say what was missing."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from headrace.client import Client
from headrace.v1 import llm_pb2, tools_pb2_grpc
from services.orchestrator.server import orchestrator
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc
from tests.support.local_client import open_client
from tests.support.orchestrator import NO_DRAIN, Serve, Step, Suite, answer, ask_for, call_tool
from tests.support.orchestrator.crashes import changes_of
from tests.support.orchestrator.recorded_runs import ONCE, RUNS, World
from tests.support.order import Event, check_order

CASES = ("a tool", "what is done once", "sub-agents")


def serving_tools(suite: Suite, address: str) -> AbstractAsyncContextManager[RunningServer]:
    served = GrpcService("headrace.v1.ToolService", suite.tools, tools_pb2_grpc.add_ToolServiceServicer_to_server)
    return serving_grpc(replace(NO_DRAIN, listen=address), [served])


@asynccontextmanager
async def orchestrator_of(suite: Suite, address: str) -> AsyncGenerator[Client]:
    """A client of an orchestrator that looks for the tools service at `address`."""
    await suite.stop()
    config = replace(suite.config, tools_address=address)
    async with orchestrator(config) as running, open_client(running.addresses[0]) as client:
        yield client


async def ask(client: Client, **fields: Any) -> list[Event]:
    events = await ask_for(client, "hello", agent_key="react", chat_id=str(uuid.uuid4()), **fields)
    check_order(events)
    return events


def address_of(suite: Suite) -> str:
    return f"unix:{suite.config.config_dir}/tools.sock"


@pytest.mark.parametrize("case", CASES)
async def test_a_run_that_begins_while_tools_are_away_is_done_when_they_are_back(serve: Serve, case: str) -> None:
    _, play, changes = RUNS[case]
    async with serve(**changes_of(changes)) as suite, orchestrator_of(suite, address_of(suite)) as client:
        world = World(suite, play)
        asking = asyncio.create_task(ask(client))
        await asyncio.sleep(0.3)  # longer than connecting takes: the run has found nobody
        assert not asking.done()
        async with serving_tools(suite, address_of(suite)):
            events = await asking
    assert events[-1]["type"] == "run.complete", events[-1]
    assert not [event for event in events if event["type"] == "run.notice"]
    assert all(event["ok"] for event in events if event["type"] in ("tool.result", "subagent.end"))
    assert set(world.runs.values()) == {1}


@pytest.mark.parametrize("tool", [ONCE, "look"])
async def test_a_call_that_finds_nobody_has_not_begun(serve: Serve, tool: str) -> None:
    """Nobody is asked whether it may have taken effect."""
    _, play, changes = RUNS["what is done once" if tool == ONCE else "a tool"]
    changes = changes_of(changes) | {"budget": {"toolTimeoutMs": 300}}
    listed = asyncio.Event()

    async def note() -> None:
        listed.set()

    async with serve(**changes) as suite, orchestrator_of(suite, address_of(suite)) as client:
        World(suite, play)
        reply = suite.llm.reply
        gone = asyncio.Barrier(2)
        suite.llm.reply = lambda request: [gone, *(reply(request) if reply else [])]
        suite.tools.listing = note
        async with serving_tools(suite, address_of(suite)):
            asking = asyncio.create_task(ask(client))
            await listed.wait()
        await gone.wait()
        await gone.wait()
        events = await asking
        assert not suite.tools.requests
    [result] = [json.loads(event["result"]) for event in events if event["type"] == "tool.result"]
    assert (result["error"], "tools service" in result["message"]) == ("PROVIDER_UNAVAILABLE", True)
    assert not [event for event in events if event["type"] in ("run.notice", "approval.ask")]


async def test_a_run_that_needs_tools_that_never_come_says_which_service_is_missing(serve: Serve) -> None:
    async with serve(budget={"timeoutMs": 8000}) as suite, orchestrator_of(suite, address_of(suite)) as client:
        error = (await ask(client))[-1]["error"]
    assert error["code"] == "PROVIDER_UNAVAILABLE"
    assert "Tool" in error["message"]


async def test_a_parent_does_not_complete_without_the_work_of_sub_agents_that_lack_their_tools(serve: Serve) -> None:
    changes = RUNS["sub-agents"][2] | {"subagents": ["helper"], "toolConfig": {}, "budget": {"timeoutMs": 8000}}
    async with serve(**changes) as suite:
        helper = json.loads((suite.agents / "react.json").read_text()) | {"toolConfig": {"backends": ["look"]}}
        (suite.agents / "helper.json").write_text(json.dumps(helper | {"subagents": []}))
        async with orchestrator_of(suite, address_of(suite)) as client:
            suite.llm.reply = _delegate
            events = await ask(client)
    assert events[-1]["type"] == "run.error"
    assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"
    assert [event["ok"] for event in events if event["type"] == "subagent.end"] == [False]


def _delegate(request: llm_pb2.ChatRequest) -> list[Step]:
    if any(message.role == "tool" for message in request.messages):
        return answer("All done.")
    return call_tool("call_subagent", '{"task":"a","agentKey":"helper"}')
