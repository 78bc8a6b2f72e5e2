"""Any replica answers for any run by forwarding calls to the run's owner, and a chat keeps its order."""

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


async def ask_and_leave(client: Client, until: str = "content.delta", **fields: Any) -> list[Event]:
    """Start a run, read it up to the first event of this type, and leave; return the events."""
    return await ask_until(client, until, agent_key="react", chat_id=CHAT, **fields)


async def ask_next(client: Client, **fields: Any) -> list[Event]:
    """Start a run and return all its events."""
    return await ask_for(client, "next", agent_key="react", chat_id=CHAT, **fields)


async def wait_for_requests(suite: Suite, count: int) -> None:
    await wait_until(lambda: len(suite.llm.requests) >= count)


async def test_a_reader_at_another_replica_gets_the_same_events_as_at_the_owner(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *content("lo"), *finish()]) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        at_owner, at_other = await asyncio.gather(
            *(read(each_replica.client, run_of(first_events)) for each_replica in (a, b))
        )
        assert at_owner == at_other
        check_order(at_other)
        later_events = await read(b.client, run_of(first_events), first_events[-1]["seq"])
        assert fold([*first_events, *later_events]) == fold(at_owner)


async def test_a_cancel_reaches_the_owner(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        reader = asyncio.create_task(read(b.client, run_of(first_events)))
        assert (await b.client.cancel(run_of(first_events))).state == "running"
        assert (await reader)[-1]["type"] == "run.cancel"
        assert (await b.client.cancel(run_of(first_events))).state == "cancelled"


async def test_a_steer_sent_to_another_replica_reaches_the_run(serve: Serve) -> None:
    turn = [*content("Hel"), 0.3, *call("look"), *finish("tool_calls")]
    async with serve(turn, ANSWER) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        answer = await b.client.steer(run_of(first_events), "faster")
        assert answer.status == "accepted"
        events = await read(b.client, run_of(first_events))
        assert [event["message"] for event in events if event["type"] == "request.steer"] == ["faster"]


async def test_a_steer_for_an_ended_run_is_queued_behind_the_chats_current_run(serve: Serve) -> None:
    async with serve(ANSWER, [*content("Hel"), 0.5, *finish()], ANSWER) as suite, two_replicas(suite) as (a, b):
        first = await ask_next(a.client)
        second = await ask_and_leave(a.client)
        answer = await b.client.steer(run_of(first), "and then?")
        assert answer.status == "queued"
        events = await read(b.client, answer.run_id)
        end = await read(b.client, run_of(second))
        assert events[-1]["type"] == end[-1]["type"] == "run.complete"
        assert end[-1]["timestamp"] <= next(event for event in events if event["type"] == "run.start")["timestamp"]


async def test_every_replica_describes_a_run_as_its_owner_does(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        for client in (a.client, b.client):
            # Only the run's owner knows what is left of its budget.
            assert (await client.run(run_of(first_events))).HasField("budget_left")
            assert (await client.chat_runs(CHAT)).runs[0].HasField("budget_left")
        await b.client.cancel(run_of(first_events))


async def test_the_queries_of_a_chat_run_one_at_a_time_across_replicas(serve: Serve) -> None:
    async with serve([0.05, *ANSWER]) as suite, two_replicas(suite) as (a, b):
        runs = await asyncio.gather(*(ask_next(client) for client in (a.client, b.client) * 4))
        starts = sorted(next(event["timestamp"] for event in run if event["type"] == "run.start") for run in runs)
        ends = sorted(run[-1]["timestamp"] for run in runs)
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert {run[-1]["type"] for run in runs} == {"run.complete"}
        for run in runs:
            check_order(run)


async def test_a_chat_is_busy_or_full_at_every_replica(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        with pytest.raises(ChatBusy) as caught:
            await ask_next(b.client, when_busy="reject")
        assert caught.value.metadata["runId"] == run_of(first_events)
        waiting = [asyncio.create_task(ask_next(client)) for client in (a.client, b.client) * 4]
        while (await count_unfinished(b)) < 9:
            await asyncio.sleep(0.02)
        with pytest.raises(QueueFull):
            await ask_next(b.client)
        await b.client.cancel(run_of(first_events))
        ends = [run[-1]["type"] for run in await asyncio.gather(*waiting)]
        assert set(ends) == {"run.complete"}


async def test_a_query_interrupts_the_run_of_another_replica(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        assert (await ask_next(b.client, when_busy="interrupt"))[-1]["type"] == "run.complete"
        assert (await read(b.client, run_of(first_events)))[-1]["type"] == "run.cancel"


async def count_unfinished(at_replica: Replica) -> int:
    return sum(run.state in ("queued", "running") for run in (await at_replica.client.chat_runs(CHAT)).runs)


async def test_a_query_repeated_at_another_replica_runs_once(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *finish()]) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client, request_id="once")
        again = await ask_next(b.client, request_id="once")
        assert run_of(again) == run_of(first_events)
        assert again[-1]["type"] == "run.complete"
        assert len(suite.llm.requests) == 1


async def test_leaving_a_forwarded_query_with_on_disconnect_cancel_cancels_it(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.2, *finish()], SLOW) as suite, two_replicas(suite) as (a, b):
        first = asyncio.create_task(ask_next(a.client))
        await wait_for_requests(suite, 1)
        second = await ask_and_leave(b.client, on_disconnect="cancel")
        assert (await read(b.client, run_of(second)))[-1]["type"] == "run.cancel"
        assert (await first)[-1]["type"] == "run.complete"


async def test_a_slow_reader_at_another_replica_does_not_stop_the_run_and_gets_everything(serve: Serve) -> None:
    text = "x" * 4096
    async with serve([0.2, *content(*[text] * 600), *finish()]) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client, "run.start")
        async with open_channel(b.address) as channel:
            pieces = agent_pb2_grpc.AgentServiceStub(channel).Attach(
                agent_pb2.AttachRequest(run_id=run_of(first_events))
            )
            async with reading(pieces) as deltas:
                deltas_read = [await anext(deltas)]
                assert (await read(a.client, run_of(first_events)))[-1]["type"] == "run.complete"
                deltas_read += [delta async for delta in deltas]
        assert deltas_read[-1].HasField("run_complete")
        events = [as_json(delta) for delta in deltas_read]
        assert "".join(texts(events, "content")) == text * 600


async def test_a_call_is_forwarded_at_most_once(serve: Serve) -> None:
    async with serve(SLOW) as suite, two_replicas(suite) as (a, b):
        first_events = await ask_and_leave(a.client)
        async with open_channel(b.address) as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            with pytest.raises(Overloaded, match="being moved"), rpc_errors():
                await stub.Cancel(
                    agent_pb2.CancelRequest(run_id=run_of(first_events)), metadata=((RELAYED, "1"),), timeout=100
                )
        await b.client.cancel(run_of(first_events))


async def test_an_unknown_run_is_not_found_without_waiting(serve: Serve) -> None:
    async with serve(ANSWER) as suite, two_replicas(suite) as (_, b):
        with pytest.raises(NotFound):
            await read(b.client, NO_RUN)
        with pytest.raises(NotFound):
            await b.client.cancel(NO_RUN)


async def test_runs_of_a_stopping_replica_continue_at_another_at_once(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite, two_replicas(suite) as (a, b):
        reader = asyncio.create_task(ask_next(b.client))
        await wait_for_requests(suite, 1)
        waiting = asyncio.create_task(ask_next(a.client))
        while (await count_unfinished(b)) < 2:
            await asyncio.sleep(0.02)
        owner, other = await owner_first(suite, a, b)
        await owner.stop()
        whole_runs: list[list[Event]] = []
        for task in (reader, waiting):
            try:
                first_events = await task
            except ProviderUnavailable:
                continue  # Its own replica stopped before the run started.
            assert not TERMINAL & {event["type"] for event in first_events}
            async with within(1.5):
                later_events = await read(other.client, run_of(first_events), first_events[-1]["seq"])
            whole_runs.append([*first_events, *later_events])
        assert whole_runs
        assert {run[-1]["type"] for run in whole_runs} == {"run.complete"}


async def owner_first(suite: Suite, a: Replica, b: Replica) -> tuple[Replica, Replica]:
    owner = (await unfinished_runs(suite))[0].owner
    return (a, b) if owner == a.address else (b, a)


async def test_runs_of_a_killed_replica_continue_at_another_when_their_leases_expire(serve: Serve) -> None:
    """No reader attaches: the other replica finds the runs by itself, and runs them in their order."""
    async with serve(SLOW, ANSWER) as suite:
        crashes = Crashes(suite)
        await suite.stop()
        async with replica(suite, "b") as b:
            async with replica(suite, "a", drain_s=0) as a:
                for _ in range(2):
                    await ask_and_leave(a.client, "request.query")
                await wait_for_requests(suite, 1)
                for run in await unfinished_runs(suite):
                    crashes.kill(run.run_id)
            unfinished = await unfinished_runs(suite)
            assert [run.owner for run in unfinished] == [a.address] * 2
            async with within(3 * LEASE_S):
                await wait_for_ends(suite)
            history = [as_json(event) for event in (await b.client.chat(CHAT)).events]
        assert [event["runId"] for event in history if event["type"] == "run.complete"] == [
            run.run_id for run in unfinished
        ]
