"""Embeddings through the orchestrator, a bounded number at a time; and answers of peers that hold for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from headrace.errors import NotFound, Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2_grpc, llm_pb2
from services.orchestrator.peers.embeddings import CALLS_MAX
from services.orchestrator.peers.ttl_cache import ANSWERS_MAX, TtlCache
from tests.support.orchestrator import Serve
from tests.support.timing import within
from tests.support.waiting import wait_until

ASKED = llm_pb2.EmbedRequest(model="e", inputs=[llm_pb2.EmbeddingInput(text="a")], dimensions=2)
REPLY = llm_pb2.EmbedResponse(provider_key="p", model="e", embeddings=[llm_pb2.Embedding(vector=b"12345678")])


async def test_a_call_goes_to_the_gateway_and_its_answer_or_error_comes_back(serve: Serve) -> None:
    async with serve() as suite, grpc.aio.insecure_channel(suite.address) as channel:
        agents: Any = agent_pb2_grpc.AgentServiceStub(channel)
        suite.llm.embedded = [REPLY, NotFound("no model", model="e")]
        assert await agents.Embed(ASKED, timeout=60) == REPLY
        with pytest.raises(NotFound), rpc_errors():
            await agents.Embed(ASKED, timeout=60)
        assert suite.llm.embed_requests == [ASKED, ASKED]


async def test_calls_above_the_places_are_refused_and_a_caller_that_leaves_gives_its_place_back(serve: Serve) -> None:
    async with serve() as suite, grpc.aio.insecure_channel(suite.address) as channel:
        agents: Any = agent_pb2_grpc.AgentServiceStub(channel)
        suite.llm.embedding = asyncio.Event()
        calls = [agents.Embed(ASKED, timeout=600) for _ in range(CALLS_MAX)]
        async with within(20):
            await wait_until(lambda: len(suite.llm.embed_requests) >= CALLS_MAX)
        with pytest.raises(Overloaded), rpc_errors():
            await agents.Embed(ASKED, timeout=60)
        for call in calls:
            call.cancel()
        suite.llm.embedding.set()
        async with within(20):
            while True:
                try:
                    with rpc_errors():
                        assert await agents.Embed(ASKED, timeout=60) == REPLY
                    return
                except Overloaded:
                    await asyncio.sleep(0.01)


class Source:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> list[int]:
        self.asked += 1
        return [self.asked]


async def test_a_fresh_answer_is_not_asked_for_again_and_an_old_one_is() -> None:
    source, fresh, old = Source(), TtlCache[str, list[int]](60), TtlCache[str, list[int]](0)
    assert [await fresh.get_or_ask("a", source) for _ in range(3)] == [[1], [1], [1]]
    assert await fresh.get_or_ask("b", source) == [2]
    assert [await old.get_or_ask("a", source) for _ in range(2)] == [[3], [4]]


async def test_an_empty_answer_and_an_error_are_not_relied_on() -> None:
    async def nothing() -> list[int]:
        return []

    async def refused() -> list[int]:
        raise Overloaded("no")

    fresh = TtlCache[str, list[int]](60)
    assert await fresh.get_or_ask("a", nothing) == []
    with pytest.raises(Overloaded):
        await fresh.get_or_ask("a", refused)
    assert await fresh.get_or_ask("a", Source()) == [1]


async def test_the_last_answers_are_kept() -> None:
    source, fresh = Source(), TtlCache[int, list[int]](60)
    for question in range(ANSWERS_MAX + 1):
        await fresh.get_or_ask(question, source)
    assert await fresh.get_or_ask(1, source) == [2]
    assert await fresh.get_or_ask(0, source) == [ANSWERS_MAX + 2]
