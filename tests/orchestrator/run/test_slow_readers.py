"""Readers that stop reading, over a real connection: nobody waits for them, and they lose nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.orchestrator.run.events.feed import QUEUE_MAX
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import Serve, Suite, answer, as_json, content, read
from tests.support.order import fold
from tests.support.timing import within
from tests.support.waiting import wait_until

CHUNKS = [f"{number:0300}" for number in range(QUEUE_MAX * 3 // 2)]
"""More than the queue, and what is on the way to a reader."""


@asynccontextmanager
async def asking(suite: Suite, on_disconnect: str = "continue") -> AsyncGenerator[AsyncIterator[agent_pb2.AgentDelta]]:
    """The events of a query, over a channel between services: a client's own takes megabytes ahead of its reader."""
    request = agent_pb2.QueryRequest(message="hi", agent_key="oneshot", on_disconnect=on_disconnect)
    async with (
        open_channel(suite.address) as channel,
        reading(agent_pb2_grpc.AgentServiceStub(channel).Query(request)) as events,
    ):
        yield events


async def begin(events: AsyncIterator[agent_pb2.AgentDelta]) -> list[agent_pb2.AgentDelta]:
    seen = [await anext(events) for _ in range(3)]
    assert seen[-1].HasField("run_start")
    return seen


async def test_a_reader_that_stops_reading_holds_up_nobody_and_gets_everything(serve: Serve) -> None:
    async with serve(answer(*CHUNKS)) as suite, asking(suite) as events:
        seen = await begin(events)
        quick = await read(suite.client, seen[-1].run_start.run_id)
        assert quick[-1]["type"] == "run.complete"
        slow = [as_json(event) for event in seen] + [as_json(event) async for event in events]
    assert fold(slow) == fold(quick)
    assert 10 < len(slow) < len(CHUNKS)


async def test_a_caller_that_stops_reading_and_leaves_ends_the_run_that_only_it_wanted(serve: Serve) -> None:
    async with serve([*content(*CHUNKS), 3600.0]) as suite:
        async with asking(suite, on_disconnect="cancel") as events:
            run_id = (await begin(events))[-1].run_start.run_id
            async with suite.client.attach(run_id) as others:
                async for event in others:
                    if CHUNKS[-1] in event.content_delta.delta:
                        break
            assert suite.llm.open == 1
        async with suite.client.attach(run_id) as others:
            assert as_json([event async for event in others][-1])["type"] == "run.cancel"
        async with within(2):
            await wait_until(lambda: not suite.llm.open)
