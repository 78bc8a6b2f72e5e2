"""The order in which a run's lines come to memory, some of which it does not take at first."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from headrace.errors import Overloaded, ProviderUnavailable
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.run.log import RunLog

SETTLES_S = 0.05


class ScriptedMemory:
    """Takes requests, known by the seq of their events, as its test lets it."""

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


async def test_what_was_refused_goes_before_what_other_tasks_send(memory: ScriptedMemory, log: RunLog) -> None:
    memory.refusals[1].append(ProviderUnavailable("away"))
    with pytest.raises(ProviderUnavailable):
        await log.append([event(1)])
    memory.waits[1] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for seq in (2, 3):
            group.create_task(log.append([event(seq)]))
        await asyncio.sleep(SETTLES_S)
        assert memory.stored == [], "nothing is stored while the first is on its way"
        memory.waits[1].set()
    assert (memory.stored[0], sorted(memory.stored)) == (1, [1, 2, 3])


async def test_requests_of_tasks_beside_each_other_do_not_wait_for_each_other(
    memory: ScriptedMemory, log: RunLog
) -> None:
    memory.waits[1] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(log.append([event(1)]))
        await asyncio.sleep(0)
        await log.append([event(2)])
        assert memory.stored == [2]
        memory.waits[1].set()
    assert memory.stored == [2, 1]


async def test_a_task_whose_request_another_has_sent_sends_nothing_of_what_is_only_kept(
    memory: ScriptedMemory, log: RunLog
) -> None:
    """As the run's end is, while the messages that nobody has asked yet are asked."""
    memory.refusals[1].append(Overloaded("busy"))
    async with asyncio.TaskGroup() as group:
        refused = group.create_task(log.append([event(1)]))
        await asyncio.sleep(SETTLES_S)
        await log.append([event(2)])
        log.keep([event(3)])
        await refused  # which tries again after a while
    assert memory.stored == [1, 2]
    await log.flush()
    assert memory.stored == [1, 2, 3]


async def test_readers_have_what_the_log_has_whoever_sent_it(memory: ScriptedMemory, log: RunLog) -> None:
    memory.refusals[1].append(ProviderUnavailable("away"))
    with pytest.raises(ProviderUnavailable):
        await log.append([event(1)])
    assert memory.released == []
    await log.append([event(2)])
    assert memory.released == [1, 2]
