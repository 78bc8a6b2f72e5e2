"""Peers: an unreachable tools service, a limited number of embedding calls, and replies cached for a while."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from headrace.client import Client
from headrace.errors import NotFound, Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2_grpc, llm_pb2, tools_pb2_grpc
from services.orchestrator.peers.embeddings import CALLS_MAX
from services.orchestrator.peers.stubs import ANSWERS_MAX, TtlCache
from services.orchestrator.server import orchestrator
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc
from tests.support.local_client import open_client
from tests.support.orchestrator import NO_DRAIN, Serve, Step, Suite, answer, ask_for, call_tool
from tests.support.orchestrator.crashes import with_tools
from tests.support.orchestrator.recorded_runs import ONCE, RUNS, World
from tests.support.order import Event, check_order
from tests.support.timing import within
from tests.support.waiting import wait_until

CASES = ("a tool", "what is done once", "sub-agents")


def serving_tools(suite: Suite, address: str) -> AbstractAsyncContextManager[RunningServer]:
    served = GrpcService("headrace.v1.ToolService", suite.tools, tools_pb2_grpc.add_ToolServiceServicer_to_server)
    return serving_grpc(replace(NO_DRAIN, listen=address), [served])


@asynccontextmanager
async def orchestrator_of(suite: Suite, address: str) -> AsyncGenerator[Client]:
    """A client of an orchestrator that connects to the tools service at `address`."""
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
async def test_a_run_started_without_a_tools_service_completes_when_it_is_back(serve: Serve, case: str) -> None:
    _, play, changes = RUNS[case]
    async with serve(**with_tools(changes)) as suite, orchestrator_of(suite, address_of(suite)) as client:
        world = World(suite, play)
        asking = asyncio.create_task(ask(client))
        await asyncio.sleep(0.3)  # Longer than connecting takes: the run has found no tools service.
        assert not asking.done()
        async with serving_tools(suite, address_of(suite)):
            events = await asking
    assert events[-1]["type"] == "run.complete", events[-1]
    assert not [event for event in events if event["type"] == "run.notice"]
    assert all(event["ok"] for event in events if event["type"] in ("tool.result", "subagent.end"))
    assert set(world.runs.values()) == {1}


@pytest.mark.parametrize("tool", [ONCE, "look"])
async def test_a_call_that_cannot_connect_has_not_started(serve: Serve, tool: str) -> None:
    """The user is not asked whether the call took effect."""
    _, play, changes = RUNS["what is done once" if tool == ONCE else "a tool"]
    changes = with_tools(changes) | {"budget": {"toolTimeoutMs": 300}}
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


async def test_a_run_without_a_tools_service_fails_naming_the_service(serve: Serve) -> None:
    async with serve(budget={"timeoutMs": 8000}) as suite, orchestrator_of(suite, address_of(suite)) as client:
        error = (await ask(client))[-1]["error"]
    assert error["code"] == "PROVIDER_UNAVAILABLE"
    assert "Tool" in error["message"]


async def test_a_parent_fails_when_a_sub_agent_lacks_its_tools_service(serve: Serve) -> None:
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


REQUEST = llm_pb2.EmbedRequest(model="e", inputs=[llm_pb2.EmbeddingInput(text="a")], dimensions=2)
REPLY = llm_pb2.EmbedResponse(provider_key="p", model="e", embeddings=[llm_pb2.Embedding(vector=b"12345678")])


async def test_embed_returns_the_gateways_reply_or_error(serve: Serve) -> None:
    async with serve() as suite, grpc.aio.insecure_channel(suite.address) as channel:
        agents: Any = agent_pb2_grpc.AgentServiceStub(channel)
        suite.llm.embedded = [REPLY, NotFound("no model", model="e")]
        assert await agents.Embed(REQUEST, timeout=60) == REPLY
        with pytest.raises(NotFound), rpc_errors():
            await agents.Embed(REQUEST, timeout=60)
        assert suite.llm.embed_requests == [REQUEST, REQUEST]


async def test_embed_calls_beyond_the_limit_are_refused_and_cancelled_ones_free_their_place(serve: Serve) -> None:
    async with serve() as suite, grpc.aio.insecure_channel(suite.address) as channel:
        agents: Any = agent_pb2_grpc.AgentServiceStub(channel)
        suite.llm.embedding = asyncio.Event()
        calls = [agents.Embed(REQUEST, timeout=600) for _ in range(CALLS_MAX)]
        async with within(20):
            await wait_until(lambda: len(suite.llm.embed_requests) >= CALLS_MAX)
        with pytest.raises(Overloaded), rpc_errors():
            await agents.Embed(REQUEST, timeout=60)
        for call in calls:
            call.cancel()
        suite.llm.embedding.set()
        async with within(20):
            while True:
                try:
                    with rpc_errors():
                        assert await agents.Embed(REQUEST, timeout=60) == REPLY
                    return
                except Overloaded:
                    await asyncio.sleep(0.01)


class Source:
    """A source whose replies are the number of calls so far."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> list[int]:
        self.asked += 1
        return [self.asked]


async def test_a_fresh_reply_is_cached_and_an_expired_one_is_fetched_again() -> None:
    source, fresh, old = Source(), TtlCache[str, list[int]](60), TtlCache[str, list[int]](0)
    assert [await fresh.get_or_ask("a", source) for _ in range(3)] == [[1], [1], [1]]
    assert await fresh.get_or_ask("b", source) == [2]
    assert [await old.get_or_ask("a", source) for _ in range(2)] == [[3], [4]]


async def test_an_empty_reply_and_an_error_are_not_cached() -> None:
    async def nothing() -> list[int]:
        return []

    async def refused() -> list[int]:
        raise Overloaded("no")

    fresh = TtlCache[str, list[int]](60)
    assert await fresh.get_or_ask("a", nothing) == []
    with pytest.raises(Overloaded):
        await fresh.get_or_ask("a", refused)
    assert await fresh.get_or_ask("a", Source()) == [1]


async def test_the_cache_keeps_the_latest_replies() -> None:
    source, fresh = Source(), TtlCache[int, list[int]](60)
    for question in range(ANSWERS_MAX + 1):
        await fresh.get_or_ask(question, source)
    assert await fresh.get_or_ask(1, source) == [2]
    assert await fresh.get_or_ask(0, source) == [ANSWERS_MAX + 2]
