"""The order in which a run's lines reach memory when it refuses some of them at first."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from headrace.errors import Overloaded, ProviderUnavailable
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.run.log import RunLog

SETTLES_S = 0.05


class ScriptedMemory:
    """A memory service that refuses or delays appends, by the seq of their event."""

    def __init__(self) -> None:
        self.memory = self
        self.stored: list[int] = []
        self.released: list[int] = []
        self.refusals: defaultdict[int, list[Exception]] = defaultdict(list)
        self.waits: dict[int, asyncio.Event] = {}

    async def Append(self, request: memory_pb2.AppendRequest, **_: Any) -> memory_pb2.AppendResponse:
        seq = request.lines[0].event.event.seq
        if self.refusals[seq]:
            raise self.refusals[seq].pop()
        if seq in self.waits:
            await self.waits[seq].wait()
        self.stored.append(seq)
        return memory_pb2.AppendResponse()


@pytest.fixture
def memory() -> ScriptedMemory:
    return ScriptedMemory()


@pytest.fixture
def log(memory: ScriptedMemory) -> RunLog:
    peers: Any = memory
    return RunLog("chat", "run", peers, [], memory.released.append)


def event(seq: int) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(event=memory_pb2.EventLine(event=agent_pb2.AgentDelta(seq=seq)))


async def test_a_refused_line_is_stored_before_the_lines_of_other_tasks(memory: ScriptedMemory, log: RunLog) -> None:
    memory.refusals[1].append(ProviderUnavailable("away"))
    with pytest.raises(ProviderUnavailable):
        await log.append([event(1)])
    memory.waits[1] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for seq in (2, 3):
            group.create_task(log.append([event(seq)]))
        await asyncio.sleep(SETTLES_S)
        assert memory.stored == [], "nothing is stored while the first one is being sent"
        memory.waits[1].set()
    assert (memory.stored[0], sorted(memory.stored)) == (1, [1, 2, 3])


async def test_appends_of_parallel_tasks_do_not_wait_for_each_other(memory: ScriptedMemory, log: RunLog) -> None:
    memory.waits[1] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(log.append([event(1)]))
        await asyncio.sleep(0)
        await log.append([event(2)])
        assert memory.stored == [2]
        memory.waits[1].set()
    assert memory.stored == [2, 1]


async def test_a_retry_already_sent_by_another_task_does_not_send_kept_lines(
    memory: ScriptedMemory, log: RunLog
) -> None:
    """The run's end is kept like this while unheard steers become queries."""
    memory.refusals[1].append(Overloaded("busy"))
    async with asyncio.TaskGroup() as group:
        refused = group.create_task(log.append([event(1)]))
        await asyncio.sleep(SETTLES_S)
        await log.append([event(2)])
        log.keep([event(3)])
        await refused  # Its retry comes after a delay.
    assert memory.stored == [1, 2]
    await log.flush()
    assert memory.stored == [1, 2, 3]


async def test_an_event_is_released_once_stored_whichever_task_sent_it(memory: ScriptedMemory, log: RunLog) -> None:
    memory.refusals[1].append(ProviderUnavailable("away"))
    with pytest.raises(ProviderUnavailable):
        await log.append([event(1)])
    assert memory.released == []
    await log.append([event(2)])
    assert memory.released == [1, 2]
