"""Messages to a run on its way: heard before its next turn, or asked as the next query, and never lost."""

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


def told(request: llm_pb2.ChatRequest) -> list[tuple[str, str]]:
    """Who said what, without the system message."""
    assert_paired(request)
    return [(message.role, "".join(part.text for part in message.content)) for message in request.messages]


async def run_with(suite: Suite, run_id: str = "", *, query: str) -> list[Event]:
    """The events of the chat's run that was asked `query`, attached to until it ends."""
    while not run_id:
        asked = ""
        for event in (await suite.client.chat(CHAT)).events:
            asked = event.request_query.message or asked
            if event.HasField("run_start") and asked == query:
                run_id = event.run_start.run_id
        await asyncio.sleep(0.02)
    return await read(suite.client, run_id)


async def wait_for_unfinished(suite: Suite, count: int) -> list[str]:
    """The ids of so many runs that are on their way or wait, in their order."""
    while len(runs := await unfinished_runs(suite)) < count:
        await asyncio.sleep(0.02)
    return [run.run_id for run in runs]


def ask_in(suite: Suite, message: str) -> Coroutine[None, None, list[Event]]:
    return ask_for(suite.client, message, agent_key="react", chat_id=CHAT)


async def test_a_message_is_heard_before_the_next_turn_and_is_in_the_log(serve: Serve) -> None:
    async with serve([*LOOK], ANSWER) as suite:
        suite.tools.delay_s = 0.2

        async def steer(event: Event) -> None:
            for _ in range(2):  # the second one repeats the first
                reply = await suite.client.steer(event["runId"], "look left\n", request_id="s1")
                assert (reply.run_id, reply.status) == (event["runId"], "accepted")
            assert any(event.HasField("request_steer") for event in (await suite.client.chat(CHAT)).events)

        events = await ask(suite, ("tool.start", steer))
        history = await read_recorded(suite, suite.run_ids[0])
        assert told(suite.llm.requests[1])[-1] == ("user", "look left\n")
        assert len(suite.llm.requests) == 2
        await ask(suite, message="and now?")
        assert ("user", "look left\n") in told(suite.llm.requests[2])
    steered = only(events, "request.steer")
    assert (steered["requestId"], steered["message"], steered["runId"]) == ("s1", "look left\n", suite.run_ids[0])
    assert only(history, "request.steer") == steered
    assert fold(history) == fold(events)


async def test_what_comes_in_the_last_turn_becomes_the_next_query(serve: Serve) -> None:
    slow: list[Step] = [*content("All "), 0.2, *content("good."), *finish()]
    async with serve(slow, ANSWER) as suite:

        async def steer(event: Event) -> None:
            for name in ("one", "two"):
                assert (await suite.client.steer(event["runId"], f"not heard {name}")).status == "accepted"

        events = await ask(suite, ("content.start", steer))
        first = await run_with(suite, query="not heard one")
        second = await run_with(suite, query="not heard two")
        assert told(suite.llm.requests[1])[-1] == ("user", "not heard one")
    assert kinds(events, "request.steer") == ["request.steer"] * 2
    assert only(first, "run.start")["agentKey"] == "react"
    assert [following[-1]["type"] for following in (first, second)] == ["run.complete"] * 2


async def test_a_run_that_has_ended_leaves_the_message_to_the_next_query(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await ask(suite)
        replies = [await suite.client.steer(suite.run_ids[0], "too late", request_id="s1") for _ in range(2)]
        assert {reply.status for reply in replies} == {"queued"}
        [run_id] = {reply.run_id for reply in replies}
        assert run_id != suite.run_ids[0]
        following = await run_with(suite, run_id, query="too late")
        assert len(suite.llm.requests) == 2
        with pytest.raises(NotFound):
            await suite.client.steer(str(uuid.uuid4()), "to nobody")
    assert following[0]["message"] == "too late"


async def test_a_run_that_waits_for_its_turn_is_no_run_to_steer(serve: Serve) -> None:
    slow: list[Step] = [*content("All "), 0.3, *content("good."), *finish()]
    async with serve(slow, ANSWER) as suite:

        async def steer(event: Event) -> None:
            await ask_until(suite.client, "request.query", "second", agent_key="react", chat_id=CHAT)
            reply = await suite.client.steer((await unfinished_runs(suite))[-1].run_id, "third")
            assert reply.status == "queued"
            following = await run_with(suite, reply.run_id, query="third")
            users = [text for role, text in told(suite.llm.requests[2]) if role == "user"]
            assert users == ["hello", "second", "third"]
            assert following[-1]["type"] == "run.complete"

        await ask(suite, ("content.start", steer))


async def test_a_cancelled_run_does_not_lose_it(serve: Serve) -> None:
    async with serve([*content("All "), 3600.0], ANSWER) as suite:

        async def steer(event: Event) -> None:
            await suite.client.steer(event["runId"], "after all")
            await suite.client.cancel(event["runId"])

        events = await ask(suite, ("content.start", steer))
        following = await run_with(suite, query="after all")
    assert (events[-1]["type"], following[-1]["type"]) == ("run.cancel", "run.complete")


async def test_it_is_answered_only_when_the_log_has_it_and_too_many_are_refused(serve: Serve) -> None:
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
async def test_it_survives_the_process(serve: Serve, dies_at: str) -> None:
    again_look = call_tool("look", '{"n":2}', call_id="b")
    async with serve([*LOOK], again_look, ANSWER) as suite:
        await suite.stop()
        suite.tools.delay_s, suite.tools.tools[0].effect = 0.1, "read"
        crashes = Crashes(suite)
        async with restart(suite) as client, client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            seen = await read_until(deltas, "tool.start")
            run_id = run_of(seen)
            await client.steer(run_id, "look left", request_id="s1")
            if dies_at != "after it":
                seen += await read_until(deltas, "tool.start")
            crashes.kill(run_id)
            seen += await read_until(deltas, "the end")
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
            assert (await client.steer(run_id, "look left", request_id="s1")).status == "accepted"
        assert rest[-1]["type"] == "run.complete"
        last = told(suite.llm.requests[-1])
        assert last.count(("user", "look left")) == 1
        assert last.index(("user", "look left")) == 3


async def test_a_message_that_waits_as_a_query_is_not_told_to_the_run_that_has_begun_since(serve: Serve) -> None:
    """Repeated, as its first answer was lost: it was told to the run, and asked behind it as well."""
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
        await run_with(suite, queued.run_id, query="look left")
    assert [text for _, text in told(suite.llm.requests[-1]) if text == "look left"] == ["look left"]


async def test_a_message_is_no_query_before_the_log_has_it(serve: Serve) -> None:
    """Repeated meanwhile it was told to be one, also where the log did not take it in the end."""
    slow = call_tool("slow")
    async with serve(slow, ANSWER, ANSWER) as suite, asyncio.TaskGroup() as group:
        sent, is_open = asyncio.Queue[str](), asyncio.Event()

        async def hold_queries(request: memory_pb2.AppendRequest) -> None:
            if any(line.HasField("query") for line in request.lines):
                sent.put_nowait(request.run_id)
                await is_open.wait()

        group.create_task(ask_in(suite, "one"))
        await wait_for_unfinished(suite, 1)
        group.create_task(ask_in(suite, "two"))
        first, second = await wait_for_unfinished(suite, 2)
        suite.memory.before = hold_queries
        told_once = group.create_task(suite.client.steer(second, "look left", request_id="s1"))
        await sent.get()
        told_again = group.create_task(suite.client.steer(second, "look left", request_id="s1"))
        await asyncio.wait({told_again, group.create_task(sent.get())}, return_when=asyncio.FIRST_COMPLETED)
        assert not told_again.done()
        is_open.set()
        assert await told_once == await told_again
        for run_id in (first, second, (await told_once).run_id):
            await suite.client.cancel(run_id)
