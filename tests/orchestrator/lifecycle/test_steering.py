"""Messages to a running run are in its next turn's request or become the next query, and are never lost."""

import asyncio
import uuid
from collections.abc import Coroutine

import pytest

from headrace.errors import NotFound, QueueFull
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.run.control.state import UNHEARD_MAX
from tests.support.orchestrator import CHAT, Serve, Suite, ask, assert_paired, kinds, only, read
from tests.support.orchestrator.crashes import Crashes, read_rest, restart
from tests.support.orchestrator.events import ask_for, ask_until, read_until, run_of
from tests.support.orchestrator.runs import read_recorded, unfinished_runs
from tests.support.orchestrator.steps import ANSWER, Step, call_tool, content, finish
from tests.support.orchestrator.watched_memory import pass_on
from tests.support.order import Event, fold
from tests.support.waiting import wait_until

LOOK = call_tool("look")


def read_messages(request: llm_pb2.ChatRequest) -> list[tuple[str, str]]:
    """Return the (role, text) pairs of a request's messages."""
    assert_paired(request)
    return [(message.role, "".join(part.text for part in message.content)) for message in request.messages]


async def read_run_of_query(suite: Suite, run_id: str = "", *, query: str) -> list[Event]:
    """Read the chat's run that has this query to its end; return its events."""
    while not run_id:
        last_query = ""
        for event in (await suite.client.chat(CHAT)).events:
            last_query = event.request_query.message or last_query
            if event.HasField("run_start") and last_query == query:
                run_id = event.run_start.run_id
        await asyncio.sleep(0.02)
    return await read(suite.client, run_id)


async def wait_for_unfinished(suite: Suite, count: int) -> list[str]:
    """Wait for this number of running or queued runs; return their ids in order."""
    while len(runs := await unfinished_runs(suite)) < count:
        await asyncio.sleep(0.02)
    return [run.run_id for run in runs]


def ask_in(suite: Suite, message: str) -> Coroutine[None, None, list[Event]]:
    return ask_for(suite.client, message, agent_key="react", chat_id=CHAT)


async def test_a_steer_is_in_the_next_turn_and_in_the_log(serve: Serve) -> None:
    async with serve([*LOOK], ANSWER) as suite:
        suite.tools.delay_s = 0.2

        async def steer(event: Event) -> None:
            for _ in range(2):  # The second call repeats the first.
                reply = await suite.client.steer(event["runId"], "look left\n", request_id="s1")
                assert (reply.run_id, reply.status) == (event["runId"], "accepted")
            assert any(event.HasField("request_steer") for event in (await suite.client.chat(CHAT)).events)

        events = await ask(suite, ("tool.start", steer))
        history = await read_recorded(suite, suite.run_ids[0])
        assert read_messages(suite.llm.requests[1])[-1] == ("user", "look left\n")
        assert len(suite.llm.requests) == 2
        await ask(suite, message="and now?")
        assert ("user", "look left\n") in read_messages(suite.llm.requests[2])
    steered = only(events, "request.steer")
    assert (steered["requestId"], steered["message"], steered["runId"]) == ("s1", "look left\n", suite.run_ids[0])
    assert only(history, "request.steer") == steered
    assert fold(history) == fold(events)


async def test_a_steer_in_the_last_turn_becomes_the_next_query(serve: Serve) -> None:
    slow: list[Step] = [*content("All "), 0.2, *content("good."), *finish()]
    async with serve(slow, ANSWER) as suite:

        async def steer(event: Event) -> None:
            for name in ("one", "two"):
                assert (await suite.client.steer(event["runId"], f"not heard {name}")).status == "accepted"

        events = await ask(suite, ("content.start", steer))
        first = await read_run_of_query(suite, query="not heard one")
        second = await read_run_of_query(suite, query="not heard two")
        assert read_messages(suite.llm.requests[1])[-1] == ("user", "not heard one")
    assert kinds(events, "request.steer") == ["request.steer"] * 2
    assert only(first, "run.start")["agentKey"] == "react"
    assert [following[-1]["type"] for following in (first, second)] == ["run.complete"] * 2


async def test_a_steer_to_an_ended_run_becomes_the_next_query(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await ask(suite)
        replies = [await suite.client.steer(suite.run_ids[0], "too late", request_id="s1") for _ in range(2)]
        assert {reply.status for reply in replies} == {"queued"}
        [run_id] = {reply.run_id for reply in replies}
        assert run_id != suite.run_ids[0]
        following = await read_run_of_query(suite, run_id, query="too late")
        assert len(suite.llm.requests) == 2
        with pytest.raises(NotFound):
            await suite.client.steer(str(uuid.uuid4()), "to nobody")
    assert following[0]["message"] == "too late"


async def test_a_steer_to_a_queued_run_becomes_a_query_after_it(serve: Serve) -> None:
    slow: list[Step] = [*content("All "), 0.3, *content("good."), *finish()]
    async with serve(slow, ANSWER) as suite:

        async def steer(event: Event) -> None:
            await ask_until(suite.client, "request.query", "second", agent_key="react", chat_id=CHAT)
            reply = await suite.client.steer((await unfinished_runs(suite))[-1].run_id, "third")
            assert reply.status == "queued"
            following = await read_run_of_query(suite, reply.run_id, query="third")
            users = [text for role, text in read_messages(suite.llm.requests[2]) if role == "user"]
            assert users == ["hello", "second", "third"]
            assert following[-1]["type"] == "run.complete"

        await ask(suite, ("content.start", steer))


async def test_a_steer_to_a_cancelled_run_becomes_the_next_query(serve: Serve) -> None:
    async with serve([*content("All "), 3600.0], ANSWER) as suite:

        async def steer(event: Event) -> None:
            await suite.client.steer(event["runId"], "after all")
            await suite.client.cancel(event["runId"])

        events = await ask(suite, ("content.start", steer))
        following = await read_run_of_query(suite, query="after all")
    assert (events[-1]["type"], following[-1]["type"]) == ("run.cancel", "run.complete")


async def test_a_steer_is_acknowledged_once_stored_and_too_many_are_refused(serve: Serve) -> None:
    async with serve([*content("All "), 3600.0], ANSWER) as suite:
        unanswered: list[str] = []

        async def before(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("request_steer") for line in request.lines):
                await asyncio.sleep(0.05)
                assert "one" in unanswered

        async def steer(event: Event) -> None:
            suite.memory.before = before
            unanswered.append("one")
            await suite.client.steer(event["runId"], "one")
            unanswered.clear()
            suite.memory.before = pass_on
            for number in range(UNHEARD_MAX - 1):
                await suite.client.steer(event["runId"], f"{number}")
            with pytest.raises(QueueFull):
                await suite.client.steer(event["runId"], "one too many")
            await suite.client.cancel(event["runId"])

        await ask(suite, ("content.start", steer))


@pytest.mark.parametrize("dies_at", ["after it", "after the turn that heard it"])
async def test_a_steer_survives_the_death_of_its_process(serve: Serve, dies_at: str) -> None:
    again_look = call_tool("look", '{"n":2}', call_id="b")
    async with serve([*LOOK], again_look, ANSWER) as suite:
        await suite.stop()
        suite.tools.delay_s, suite.tools.tools[0].effect = 0.1, "read"
        crashes = Crashes(suite)
        async with restart(suite) as client, client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            events_before = await read_until(deltas, "tool.start")
            run_id = run_of(events_before)
            await client.steer(run_id, "look left", request_id="s1")
            if dies_at != "after it":
                events_before += await read_until(deltas, "tool.start")
            crashes.kill(run_id)
            events_before += await read_until(deltas, "the end")
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
            assert (await client.steer(run_id, "look left", request_id="s1")).status == "accepted"
        assert events_after[-1]["type"] == "run.complete"
        messages = read_messages(suite.llm.requests[-1])
        assert messages.count(("user", "look left")) == 1
        assert messages.index(("user", "look left")) == 3


async def test_a_steer_queued_as_a_query_is_not_also_sent_to_the_run(serve: Serve) -> None:
    """A steer repeated because its reply was lost once went to the run and also became a query after it."""
    slow = call_tool("slow")
    async with serve(slow, slow, ANSWER) as suite, asyncio.TaskGroup() as group:
        group.create_task(ask_in(suite, "one"))
        await wait_until(lambda: suite.tools.open)
        group.create_task(ask_in(suite, "two"))
        first, second = await wait_for_unfinished(suite, 2)
        queued = await suite.client.steer(second, "look left", request_id="s1")
        assert queued.status == "queued"
        await suite.client.cancel(first)
        await wait_until(lambda: len(suite.tools.requests) == 2)
        assert await suite.client.steer(second, "look left", request_id="s1") == queued
        assert (await suite.client.steer(second, "look right", request_id="s2")).status == "accepted"
        await suite.client.cancel(second)
        await read_run_of_query(suite, queued.run_id, query="look left")
    assert [text for _, text in read_messages(suite.llm.requests[-1]) if text == "look left"] == ["look left"]


async def test_a_steer_is_reported_as_queued_only_once_the_log_has_it(serve: Serve) -> None:
    """A repetition was once reported as queued, although the log refused the query in the end."""
    slow = call_tool("slow")
    async with serve(slow, ANSWER, ANSWER) as suite, asyncio.TaskGroup() as group:
        queries_being_stored, is_open = asyncio.Queue[str](), asyncio.Event()

        async def hold_queries(request: memory_pb2.AppendRequest) -> None:
            if any(line.HasField("query") for line in request.lines):
                queries_being_stored.put_nowait(request.run_id)
                await is_open.wait()

        group.create_task(ask_in(suite, "one"))
        await wait_for_unfinished(suite, 1)
        group.create_task(ask_in(suite, "two"))
        first, second = await wait_for_unfinished(suite, 2)
        suite.memory.before = hold_queries
        first_reply = group.create_task(suite.client.steer(second, "look left", request_id="s1"))
        await queries_being_stored.get()
        second_reply = group.create_task(suite.client.steer(second, "look left", request_id="s1"))
        await asyncio.wait(
            {second_reply, group.create_task(queries_being_stored.get())}, return_when=asyncio.FIRST_COMPLETED
        )
        assert not second_reply.done()
        is_open.set()
        assert await first_reply == await second_reply
        for run_id in (first, second, (await first_reply).run_id):
            await suite.client.cancel(run_id)
