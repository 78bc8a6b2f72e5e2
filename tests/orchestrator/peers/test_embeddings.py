"""Embeddings through the orchestrator: passed on with their errors, a bounded number at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from headrace.errors import NotFound, Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2_grpc, llm_pb2
from services.orchestrator.peers.embeddings import CALLS_MAX
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
