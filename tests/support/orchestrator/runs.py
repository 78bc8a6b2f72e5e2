"""Runs as memory and other readers see them."""

import asyncio
from collections.abc import Sequence

from headrace.client import Client
from headrace.v1 import memory_pb2
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event


async def read_recorded(suite: Suite, run_id: str) -> list[Event]:
    """Return a run's events from the log."""
    events = [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]
    starts = [index for index, event in enumerate(events) if event["type"] == "request.query"]
    runs = [events[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
    return next(run for run in runs if any(event.get("runId") == run_id for event in run))


async def unfinished_runs(suite: Suite) -> Sequence[memory_pb2.UnfinishedRun]:
    return (await suite.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(), None)).runs


async def wait_for_ends(suite: Suite) -> None:
    """Wait until the log has the end of every run."""
    while await unfinished_runs(suite):
        await asyncio.sleep(0.02)


async def get_title(suite: Suite, chat_id: str) -> str:
    return (await suite.memory.GetChat(memory_pb2.GetChatRequest(chat_id=chat_id, without_events=True), None)).title


async def wait_for_title(suite: Suite, chat_id: str, title: str) -> None:
    async with asyncio.timeout(100):
        while await get_title(suite, chat_id) != title:
            await asyncio.sleep(0.01)


async def follow(client: Client, run_id: str, heard: asyncio.Event) -> list[Event]:
    """Read the run and return all its events; `heard` is set with the first."""
    events: list[Event] = []
    async with client.attach(run_id) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            heard.set()
    return events
