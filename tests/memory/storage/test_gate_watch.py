"""Watching gates: the open ones first, then each change, for callers who may see them, on both engines."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidRequest, PermissionDenied
from headrace.v1 import common_pb2, memory_pb2
from services.memory.storage.gates.query import GateQuery
from services.memory.storage.gates.rows import GateEntry
from services.memory.storage.gates.watch import WAITING_MAX, GateKey, GateWatch
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.gates import AT, WAIT_S, approval, closing, opening, step, submitted, watching
from tests.support.memory.writing import Memory, run_line


def make_opening_for(gate_id: str, *names: str, not_requester: bool = False) -> memory_pb2.LogLine:
    return opening(gate_id, answerers=common_pb2.Answerers(any_of=names, not_requester=not_requester))


@pytest.mark.engines
async def test_open_gates_are_sent_first_and_then_each_change(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(opening("t_1"), opening("t_0", AT - 1), opening("t_9"), submitted("t_9"))
    async with watching(memory) as watch:
        assert await watch.next(4) == ["list_begin", "t_0 open", "t_1 open", "list_end"]
        await memory.append(chat_id, run_id, approval("approval_1", "high"))
        gate = await watch.find(lambda gate: gate.gate_id == "approval_1")
        assert gate == await memory.gate(run_id, "approval_1")
        assert (gate.risk, gate.chat_id) == ("high", chat_id)
        await memory.append(chat_id, run_id, step("t_0", "claimed", "ada", until=4_000_000_000_000))
        assert await watch.find(lambda gate: (gate.gate_id, gate.claimed_by) == ("t_0", "ada"))
        await memory.append(chat_id, run_id, step("t_0", "vote", "ada", decision="approve"))
        assert await watch.find(lambda gate: (gate.gate_id, [*gate.voters]) == ("t_0", ["ada"]))
        await memory.append(chat_id, run_id, submitted("t_0"))
        assert await watch.find(lambda gate: (gate.gate_id, gate.state) == ("t_0", "answered"))
        await memory.append(chat_id, run_id, closing("approval_1", "expired"))
        assert await watch.find(lambda gate: (gate.gate_id, gate.state) == ("approval_1", "expired"))
        await memory.append(chat_id, run_id, run_line("cancelled"))
        # The run's other gates, which were closed before, may be sent again.
        last_events = [await watch.next() for _ in range(1)]
        while last_events[-1] != ["t_1 cancelled"]:
            last_events.append(await watch.next())


@pytest.mark.engines
async def test_a_watch_applies_the_filters_of_the_list(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    async with watching(memory, kind="approval", risk="high", agent_key="clerk") as watch:
        assert await watch.next(2) == ["list_begin", "list_end"]
        other = opening("t_2", kind="approval", risk="high", agent_key="writer")
        await memory.append(chat_id, run_id, opening("t_1"), approval("a_1", "low"), other, approval("a_2", "high"))
        assert await watch.next() == ["a_2 open"]


@pytest.mark.engines
async def test_each_caller_receives_only_the_gates_they_may_see(memory: Memory) -> None:
    ada, boss = Identity("acme", "ada"), Identity("acme", "bob", roles=frozenset({"boss"}))
    foreign = Identity("other", "bob", roles=frozenset({"boss"}))
    chat_id, run_id = await memory.acting_as(ada).begin()
    with acting_as(boss):
        as_boss = watching(memory)
        async with as_boss as of_boss:
            assert await of_boss.next(2) == ["list_begin", "list_end"]
            with acting_as(ada):
                own = watching(memory, scope="own")
                async with own as of_ada, watching(memory) as answerable:
                    assert await of_ada.next(2) == await answerable.next(2) == ["list_begin", "list_end"]
                    with acting_as(foreign):
                        async with watching(memory) as elsewhere:
                            assert await elsewhere.next(2) == ["list_begin", "list_end"]
                            with acting_as(ada):
                                lines = (
                                    make_opening_for("g_1", "role:boss", not_requester=True),
                                    make_opening_for("g_2", "requester"),
                                )
                                await memory.append(chat_id, run_id, *lines)
                                assert await of_boss.next() == ["g_1 open"]
                                assert sorted(await of_ada.next(2)) == ["g_1 open", "g_2 open"]
                                assert await answerable.next() == ["g_2 open"]
                                # A delegated gate is sent to those who may answer it now.
                                await memory.append(chat_id, run_id, step("g_2", "delegated", "ada", to=["user:bob"]))
                                assert await of_boss.next() == ["g_2 open"]
                            with acting_as(foreign):
                                await memory.begin_with(make_opening_for("g_3", "tenant"))
                                assert await elsewhere.next() == ["g_3 open"]


async def test_a_watch_that_the_caller_may_not_open_is_refused(memory: Memory) -> None:
    plain = Identity("acme", "ada", scopes=frozenset({"ask"}))
    with acting_as(plain):
        with pytest.raises(PermissionDenied):
            async with watching(memory, scope="tenant") as watch:
                await watch.next()
        with pytest.raises(InvalidRequest):
            async with watching(memory, kind="riddle") as watch:
                await watch.next()
        chat_id, run_id = await memory.begin()
        # A caller who may not answer gates receives an empty list.
        async with watching(memory) as watch, watching(memory, scope="own") as own:
            assert await watch.next(2) == ["list_begin", "list_end"] == await own.next(2)
            await memory.append(chat_id, run_id, opening("t_1"))
            assert await own.next() == ["t_1 open"]


@pytest.mark.engines
async def test_more_gates_than_a_page_are_listed_completely(memory: Memory) -> None:
    await memory.begin_with(*(opening(f"t_{n:03}") for n in range(450)))
    async with watching(memory) as watch:
        events = await watch.next(452)
        assert events[1:-1] == [f"t_{n:03} open" for n in range(450)]
        assert (events[0], events[-1]) == ("list_begin", "list_end")


def make_entry(n: int, **fields: Any) -> GateEntry:
    given: dict[str, Any] = dict.fromkeys(("kind", "tool_id", "tool_name", "risk", "reason", "viewport_key"), "")
    given |= {"run_id": "r", "gate_id": f"g_{n}", "chat_id": "c", "tenant": "acme", "opened_at": 1, "expires_at": 2}
    given |= {"agent_key": "clerk", "answerers": "\nuser:ada\n", "requester": "ada"}
    return GateEntry(**(given | fields))


async def test_a_slow_reader_must_list_again_and_few_changes_are_buffered_for_it() -> None:
    watch, found = GateWatch(), [make_entry(n) for n in range(WAITING_MAX + 1)]

    async def find(keys: Any) -> list[GateEntry]:
        return [gate for gate in found if (gate.run_id, gate.gate_id) in keys]

    reads = asyncio.create_task(watch.run_reads(find))
    try:
        with watch.reading(GateQuery("acme")) as slow:
            slow.begin_list()
            for gate in found:
                watch.report([(gate.run_id, gate.gate_id)])
                if gate is found[WAITING_MAX // 2]:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
            async with asyncio.timeout(WAIT_S):
                while not slow.must_list:
                    await asyncio.sleep(0)
            assert await slow.take() == []
            slow.begin_list()
            found[0] = replace(found[0], voters="\nada\n")
            for _ in range(2):  # changes of one gate in quick succession are merged
                watch.report([("r", "g_0")])
            assert await slow.take() == [found[0]]
    finally:
        reads.cancel()


async def test_gates_that_could_not_be_read_are_listed_again() -> None:
    watch = GateWatch()

    async def fail(_: Any) -> list[GateEntry]:
        raise HeadraceError("the store is away")

    reads = asyncio.create_task(watch.run_reads(fail))
    try:
        with watch.reading(GateQuery("acme")) as reader:
            reader.begin_list()
            watch.report([("r", "g_0")])
            async with asyncio.timeout(WAIT_S):
                assert await reader.take() == []
            assert reader.must_list
    finally:
        reads.cancel()


async def test_closing_a_watch_ends_its_readers() -> None:
    watch = GateWatch()
    with watch.reading(GateQuery("acme")) as reader:
        reader.begin_list()
        taking = asyncio.create_task(reader.take())
        await asyncio.sleep(0)
        await watch.close()
        assert await taking == []
        assert reader.is_closed
    with watch.reading(GateQuery("acme")) as late:
        assert late.is_closed


async def test_without_readers_no_gate_is_read() -> None:
    watch, reads = GateWatch(), list[GateKey]()

    async def find(keys: Any) -> list[GateEntry]:
        reads.extend(keys)
        return []

    task = asyncio.create_task(watch.run_reads(find))
    watch.report([("r", "g_0")])
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    assert reads == []
