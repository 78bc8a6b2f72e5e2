"""No reader gets an end that is not stored, since the run's next owner would take it back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import HeadraceError, LogDamaged, Overloaded, ProviderUnavailable
from headrace.v1 import memory_pb2
from tests.support.orchestrator import Serve, Suite, as_json, read, replica
from tests.support.orchestrator.crashes import restart, with_tools
from tests.support.orchestrator.events import read_until, run_of
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.orchestrator.runs import unfinished_runs
from tests.support.orchestrator.watched_memory import pass_on
from tests.support.order import TERMINAL, Event, fold
from tests.support.tiers import check_each

CHAT = "5f0c0000-0000-4000-8000-000000000011"

FAULTS: dict[str, Callable[[], Exception]] = {
    "a log that could not be truncated": lambda: LogDamaged("the disk failed in the middle of an append"),
    "a memory that is away": lambda: ProviderUnavailable("not now"),
    "a full disk": lambda: Overloaded("the disk is full"),
    "a bug of memory": lambda: ValueError("a bug"),
}


def asks_for_tool(request: memory_pb2.AppendRequest) -> bool:
    return any(message.message.tool_calls for line in request.lines for message in line.step.messages)


def has_result(request: memory_pb2.AppendRequest) -> bool:
    return any(message.message.role == "tool" for line in request.lines for message in line.step.messages)


def ends_run(request: memory_pb2.AppendRequest) -> bool:
    return request.lines[-1].HasField("run")


MOMENTS = {"before the effect": asks_for_tool, "at its result": has_result, "at the end": ends_run}


class Fault:
    """From a chosen append of a run on, memory refuses all appends until the fault is mended."""

    def __init__(self, suite: Suite, error: Callable[[], Exception], begins: Callable[..., bool]) -> None:
        self._it = suite
        self._error = error
        self._begins = begins
        self._is_there = False
        suite.memory.before = self._refuse

    async def _refuse(self, request: memory_pb2.AppendRequest) -> None:
        self._is_there |= self._begins(request)
        if self._is_there:
            raise self._error()

    def mend(self) -> None:
        assert self._is_there
        self._it.memory.before = pass_on


async def follow(client: Client, run_id: str, events: list[Event]) -> None:
    """Add the events after those in `events`, until the stream ends."""
    events += await read(client, run_id, events[-1]["seq"] if events else 0)


async def follow_to_end(client: Client, run_id: str, events: list[Event]) -> None:
    while not TERMINAL & {event["type"] for event in events}:
        try:
            await follow(client, run_id, events)
        except HeadraceError:
            await asyncio.sleep(0.05)


# Appends are retried for seconds if memory may come back, so each of these cases takes long.
SLOW = [
    (fault, moment, how)
    for fault in ("a memory that is away", "a full disk")
    for moment, how in (("before the effect", "restarted"), ("at the end", "mended"))
]
QUICK = itertools.product(("a log that could not be truncated", "a bug of memory"), MOMENTS, ("restarted", "mended"))


@pytest.mark.parametrize(("fault", "moment", "how"), check_each([*QUICK, *SLOW], each=3))
async def test_an_end_sent_to_readers_is_final(serve: Serve, fault: str, moment: str, how: str) -> None:
    agent, play, changes = RUNS["what is done once"]
    async with serve(**with_tools(changes)) as suite, AsyncExitStack() as stack:
        await suite.stop()
        owner = await stack.enter_async_context(replica(suite, "owner"))
        world, broken = World(suite, play), Fault(suite, FAULTS[fault], MOMENTS[moment])
        readers: list[list[Event]] = [[], []]
        attached: list[asyncio.Task[None]] = []
        async with owner.client.ask("hello", agent_key=agent, chat_id=CHAT) as deltas:
            async for delta in deltas:
                readers[0].append(as_json(delta))
                if delta.HasField("run_start"):
                    attached.append(asyncio.create_task(follow(owner.client, delta.run_start.run_id, readers[1])))
        await asyncio.gather(*attached)
        run_id = run_of(readers[0])
        for events in readers:
            assert not TERMINAL & {event["type"] for event in events}, "this end is not stored"
        client = owner.client
        if how == "restarted":
            await owner.stop()
            client = await stack.enter_async_context(restart(suite))
        broken.mend()
        async with asyncio.TaskGroup() as group:
            for events in readers:
                group.create_task(follow_to_end(client, run_id, events))
        calls, stored = len(suite.tools.requests), (await suite.client.chat(CHAT)).events
        assert fold(readers[0]) == fold(readers[1]) == fold([as_json(event) for event in stored])
        async with restart(suite, "the next") as following:
            events_of_late_reader: list[Event] = []
            await follow(following, run_id, events_of_late_reader)
            assert fold(events_of_late_reader) == fold(readers[0])
            assert not await unfinished_runs(suite)
        assert len(suite.tools.requests) == calls
        assert (await suite.client.chat(CHAT)).events == stored
        end_event = next(event for event in readers[0] if event["type"] in TERMINAL)
        if end_event["type"] == "run.complete":
            assert set(world.runs.values()) == {1}
        assert set(world.runs.values()) <= {1}


RUN_CALLS: dict[str, Callable[[Client, str], Awaitable[Any]]] = {
    "attach": lambda client, run_id: follow(client, run_id, []),
    "cancel": lambda client, run_id: client.cancel(run_id),
    "submit": lambda client, run_id: client.submit(run_id, "{}", tool_id="t_1"),
}


@pytest.mark.parametrize("name", RUN_CALLS)
async def test_a_run_whose_end_a_fail_over_takes_back_is_not_reported_as_ended(serve: Serve, name: str) -> None:
    """Found by seed 79599 of trials/simulation: a reader that attached got the error that the run never ends."""
    agent, play, changes = RUNS["what is done once"]
    async with serve(**with_tools(changes)) as suite, replica(suite, "other") as other:
        World(suite, play)
        may_end = asyncio.Event()

        async def hold_end(request: memory_pb2.AppendRequest) -> None:
            if ends_run(request):
                await may_end.wait()

        suite.memory.before = hold_end
        async with suite.client.ask("hello", agent_key=agent, chat_id=CHAT) as deltas:
            run_id = run_of(await read_until(deltas, "run.start"))
            suite.memory.taken_back.add(run_id)
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(Overloaded, match="lost its end"):
                        await RUN_CALLS[name](other.client, run_id)
            finally:
                may_end.set()
