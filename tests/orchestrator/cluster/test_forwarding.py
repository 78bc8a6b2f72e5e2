"""Any replica answers for any run: what another one has is asked of it, and a chat keeps its order."""

import asyncio
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import ChatBusy, NotFound, Overloaded, ProviderUnavailable, QueueFull
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.orchestrator.cluster.forwarding import RELAYED
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import ANSWER, CHAT, Serve, Suite, as_json, call, content, finish, read, replica
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.events import ask_for, ask_until, run_of
from tests.support.orchestrator.replicas import LEASE_S, Replica, two_replicas
from tests.support.orchestrator.runs import unfinished_runs, wait_for_ends
from tests.support.order import TERMINAL, Event, check_order, fold, texts
from tests.support.timing import within
from tests.support.waiting import wait_until

NO_RUN = "00000000-0000-4000-8000-000000000000"
SLOW = [*content("Hel"), 3600.0]


async def begun(client: Client, until: str = "content.delta", **fields: Any) -> list[Event]:
    """What a reader has seen of a new run that leaves at the first event of this type."""
    return await ask_until(client, until, agent_key="react", chat_id=CHAT, **fields)


async def asked(client: Client, **fields: Any) -> list[Event]:
    """A whole run."""
    return await ask_for(client, "next", agent_key="react", chat_id=CHAT, **fields)


async def until_asked(suite: Suite, count: int) -> None:
    await wait_until(lambda: len(suite.llm.requests) >= count)


async def test_a_reader_at_another_replica_sees_what_one_at_the_owner_sees(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *content("lo"), *finish()]) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        here, there = await asyncio.gather(*(read(one.client, run_of(seen)) for one in (a, b)))
        assert here == there
        check_order(there)
        rest = await read(b.client, run_of(seen), seen[-1]["seq"])
        assert fold([*seen, *rest]) == fold(here)


async def test_a_cancel_reaches_the_owner(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        reading_on = asyncio.create_task(read(b.client, run_of(seen)))
        assert (await b.client.cancel(run_of(seen))).state == "running"
        assert (await reading_on)[-1]["type"] == "run.cancel"
        assert (await b.client.cancel(run_of(seen))).state == "cancelled"


async def test_a_run_hears_what_another_replica_was_told(serve: Serve) -> None:
    turn = [*content("Hel"), 0.3, *call("look"), *finish("tool_calls")]
    async with serve(turn, ANSWER) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        answer = await b.client.steer(run_of(seen), "faster")
        assert answer.status == "accepted"
        events = await read(b.client, run_of(seen))
        assert [event["message"] for event in events if event["type"] == "request.steer"] == ["faster"]


async def test_a_message_for_a_run_that_has_ended_goes_where_its_chat_is(serve: Serve) -> None:
    async with serve(ANSWER, [*content("Hel"), 0.5, *finish()], ANSWER) as suite, two_replicas(suite) as (a, b):
        first = await asked(a.client)
        second = await begun(a.client)
        answer = await b.client.steer(run_of(first), "and then?")
        assert answer.status == "queued"
        events = await read(b.client, answer.run_id)
        end = await read(b.client, run_of(second))
        assert events[-1]["type"] == end[-1]["type"] == "run.complete"
        assert end[-1]["timestamp"] <= next(event for event in events if event["type"] == "run.start")["timestamp"]


async def test_a_run_is_told_of_as_its_owner_knows_it(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        for client in (a.client, b.client):
            # Only who has the run knows what is left of its budget.
            assert (await client.run(run_of(seen))).HasField("budget_left")
            assert (await client.chat_runs(CHAT)).runs[0].HasField("budget_left")
        await b.client.cancel(run_of(seen))


async def test_the_queries_of_a_chat_run_one_after_the_other_wherever_they_are_asked(serve: Serve) -> None:
    async with serve([0.05, *ANSWER]) as suite, two_replicas(suite) as (a, b):
        runs = await asyncio.gather(*(asked(client) for client in (a.client, b.client) * 4))
        starts = sorted(next(event["timestamp"] for event in run if event["type"] == "run.start") for run in runs)
        ends = sorted(run[-1]["timestamp"] for run in runs)
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert {run[-1]["type"] for run in runs} == {"run.complete"}
        for run in runs:
            check_order(run)


async def test_a_busy_chat_is_busy_at_every_replica(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        with pytest.raises(ChatBusy) as caught:
            await asked(b.client, when_busy="reject")
        assert caught.value.metadata["runId"] == run_of(seen)
        waiting = [asyncio.create_task(asked(client)) for client in (a.client, b.client) * 4]
        while (await queued(b)) < 9:
            await asyncio.sleep(0.02)
        with pytest.raises(QueueFull):
            await asked(b.client)
        await b.client.cancel(run_of(seen))
        ends = [run[-1]["type"] for run in await asyncio.gather(*waiting)]
        assert set(ends) == {"run.complete"}


async def test_a_query_interrupts_the_run_of_another_replica(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        assert (await asked(b.client, when_busy="interrupt"))[-1]["type"] == "run.complete"
        assert (await read(b.client, run_of(seen)))[-1]["type"] == "run.cancel"


async def queued(at: Replica) -> int:
    return sum(run.state in ("queued", "running") for run in (await at.client.chat_runs(CHAT)).runs)


async def test_a_query_that_is_repeated_at_another_replica_is_one_query(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *finish()]) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client, request_id="once")
        again = await asked(b.client, request_id="once")
        assert run_of(again) == run_of(seen)
        assert again[-1]["type"] == "run.complete"
        assert len(suite.llm.requests) == 1


async def test_a_caller_who_leaves_a_relayed_query_cancels_it_when_it_said_so(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.2, *finish()], SLOW) as suite, two_replicas(suite) as (a, b):
        first = asyncio.create_task(asked(a.client))
        await until_asked(suite, 1)
        second = await begun(b.client, on_disconnect="cancel")
        assert (await read(b.client, run_of(second)))[-1]["type"] == "run.cancel"
        assert (await first)[-1]["type"] == "run.complete"


async def test_a_reader_that_stops_stops_the_relay_and_not_the_run(serve: Serve) -> None:
    text = "x" * 4096
    async with serve([0.2, *content(*[text] * 600), *finish()]) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client, "run.start")
        async with open_channel(b.address) as channel:
            pieces = agent_pb2_grpc.AgentServiceStub(channel).Attach(agent_pb2.AttachRequest(run_id=run_of(seen)))
            async with reading(pieces) as deltas:
                slow = [await anext(deltas)]
                assert (await read(a.client, run_of(seen)))[-1]["type"] == "run.complete"
                slow += [delta async for delta in deltas]
        assert slow[-1].HasField("run_complete")
        events = [as_json(delta) for delta in slow]
        assert "".join(texts(events, "content")) == text * 600


async def test_a_call_is_passed_on_once_at_most(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        seen = await begun(a.client)
        async with open_channel(b.address) as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            with pytest.raises(Overloaded, match="being moved"), rpc_errors():
                await stub.Cancel(agent_pb2.CancelRequest(run_id=run_of(seen)), metadata=((RELAYED, "1"),), timeout=100)
        await b.client.cancel(run_of(seen))


async def test_a_run_that_nobody_has_is_not_found_at_once(serve: Serve) -> None:
    async with serve(ANSWER) as suite, two_replicas(suite) as (_, b):
        with pytest.raises(NotFound):
            await read(b.client, NO_RUN)
        with pytest.raises(NotFound):
            await b.client.cancel(NO_RUN)


async def test_a_replica_that_stops_hands_over_at_once_and_readers_come_back_once(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        reader = asyncio.create_task(asked(b.client))
        await until_asked(suite, 1)
        waiting = asyncio.create_task(asked(a.client))
        while (await queued(b)) < 2:
            await asyncio.sleep(0.02)
        owner, other = await owner_first(suite, a, b)
        await owner.stop()
        ended: list[list[Event]] = []
        for task in (reader, waiting):
            try:
                seen = await task
            except ProviderUnavailable:
                continue  # its own replica has stopped before it had begun
            assert not TERMINAL & {event["type"] for event in seen}
            async with within(1.5):
                rest = await read(other.client, run_of(seen), seen[-1]["seq"])
            ended.append([*seen, *rest])
        assert ended
        assert {run[-1]["type"] for run in ended} == {"run.complete"}


async def owner_first(suite: Suite, a: Replica, b: Replica) -> tuple[Replica, Replica]:
    owner = (await unfinished_runs(suite))[0].owner
    return (a, b) if owner == a.address else (b, a)


async def test_the_runs_of_a_replica_that_died_go_on_at_another_when_their_leases_end(serve: Serve) -> None:
    """Nobody attaches: the other one finds them. In their order."""
    async with serve(SLOW, ANSWER) as suite:
        crashes = Crashes(suite)
        await suite.stop()
        async with replica(suite, "b") as b:
            async with replica(suite, "a", drain_s=0) as a:
                for _ in range(2):
                    await begun(a.client, "request.query")
                await until_asked(suite, 1)
                for run in await unfinished_runs(suite):
                    crashes.kill(run.run_id)
            left = await unfinished_runs(suite)
            assert [run.owner for run in left] == [a.address] * 2
            async with within(3 * LEASE_S):
                await wait_for_ends(suite)
            history = [as_json(event) for event in (await b.client.chat(CHAT)).events]
        assert [event["runId"] for event in history if event["type"] == "run.complete"] == [run.run_id for run in left]
