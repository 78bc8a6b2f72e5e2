"""A new query to a busy chat lets its runs continue, cancels them or rolls them back; reverted runs are not found."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from headrace.errors import HeadraceError, NotFound
from headrace.v1 import agent_pb2, gates_pb2, memory_pb2, tools_pb2
from services.orchestrator.run.control.gates import Gates, Submission
from services.runtime.clock import now_ms
from tests.support.orchestrator import (
    Serve,
    Suite,
    as_json,
    assert_paired,
    call,
    finish,
    only,
    read,
    two_replicas,
    types,
)
from tests.support.orchestrator.answerers import KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.events import read_until, run_of
from tests.support.orchestrator.gate_runs import GateFollower, reading_run, waiting_run
from tests.support.orchestrator.steps import ANSWER, Step, answer, call_tool, content
from tests.support.waiting import wait_until

HANGING: list[Step] = [*content("Hel"), 3600.0]


def read_texts(suite: Suite, number: int = -1) -> list[str]:
    """Return the texts of a request."""
    messages = list(suite.llm.requests[number].messages)
    return ["".join(part.text for part in message.content) for message in messages]


@asynccontextmanager
async def reading_until(
    suite: Suite, message: str, until: str = "content.delta"
) -> AsyncGenerator[list[dict[str, Any]]]:
    """Start a run in the suite's chat and read it up to this event; after the block the events are complete."""
    async with suite.client.ask(message, agent_key="react", chat_id=suite.chat_id) as deltas:
        events = await read_until(deltas, until)
        yield events
        events += [as_json(delta) async for delta in deltas]


@pytest.mark.parametrize(("turn", "until"), [(HANGING, "content.delta"), (call_tool("slow"), "tool.output")])
async def test_rollback_removes_the_running_run_from_the_context(serve: Serve, turn: list[Step], until: str) -> None:
    async with serve(ANSWER, turn, ANSWER) as suite:
        await suite.ask("one")
        async with reading_until(suite, "wrong", until) as cancelled:
            events = await suite.ask("right", when_busy="rollback")
        assert cancelled[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert read_texts(suite) == ["one", "All good.", "right"]
        await suite.ask("and now?")
        assert read_texts(suite) == ["one", "All good.", "right", "All good.", "and now?"]
        assert_paired(suite.llm.requests[-1])
        history = [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]
        messages = [event["message"] for event in history if event["type"] == "request.query"]
        assert messages == ["one", "wrong", "right", "and now?"]
        assert "run.cancel" in types(history)


async def test_rollback_removes_queued_runs_too(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with reading_until(suite, "wrong"):
            waiting = asyncio.create_task(suite.ask("wrong too"))
            await asyncio.sleep(0.1)
            events = await suite.ask("right", when_busy="rollback")
            assert (await waiting)[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert read_texts(suite) == ["one", "All good.", "right"]


async def test_a_second_rollback_removes_the_first_ones_run(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with reading_until(suite, "wrong"):
            second = asyncio.create_task(suite.ask("wrong again", when_busy="rollback"))
            await wait_until(lambda: len(suite.llm.requests) >= 3)
            await suite.ask("right", when_busy="rollback")
            assert (await second)[-1]["type"] == "run.cancel"
        assert read_texts(suite) == ["one", "All good.", "right"]


async def test_of_simultaneous_rollbacks_none_leaves_the_rolled_back_run(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with reading_until(suite, "wrong"):
            rollbacks = [asyncio.create_task(suite.ask(f"no {n}", when_busy="rollback")) for n in range(5)]
            await asyncio.sleep(0)
            await suite.ask("right", when_busy="rollback")
            await asyncio.wait(rollbacks)
        assert read_texts(suite)[:2] == ["one", "All good."]
        assert "wrong" not in read_texts(suite)
        await suite.ask("and now?")
        assert "wrong" not in read_texts(suite)
        assert_paired(suite.llm.requests[-1])


async def test_rollback_in_an_idle_chat_removes_nothing(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask("one")
        await suite.ask("two", when_busy="rollback")
    assert read_texts(suite) == ["one", "All good.", "two"]


async def test_an_interrupted_run_stays_in_the_context(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with reading_until(suite, "two"):
            await suite.ask("three", when_busy="interrupt")
    assert read_texts(suite) == ["one", "All good.", "two", "Hel", "three"]


async def test_a_reverted_run_is_not_found(serve: Serve) -> None:
    async with serve(answer("a")) as suite:
        run_id = run_of(await suite.ask(record=True))
        assert await suite.client.cassette(run_id)
        await suite.client.revert(suite.chat_id, 0)
        for attempt in (
            read(suite.client, run_id),
            suite.client.steer(run_id, "go on"),
            suite.client.cancel(run_id),
            suite.client.cassette(run_id),
        ):
            with pytest.raises(NotFound, match="reverted"):
                await attempt


def ask_again_in_chat(
    suite: Suite, gate: gates_pb2.Gate, **fields: Any
) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    return suite.client.ask("and now?", agent_key="react", chat_id=gate.chat_id, **fields)


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_new_message_cancels_a_waiting_run_if_the_agent_says_so(kind: str, serve: Serve) -> None:
    async with waiting_run(serve, {}, kind, keys={}, onNewMessage="cancel") as (suite, gate, run):
        async with ask_again_in_chat(suite, await suite.client.gate(*gate)) as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.cancel"
        assert (await suite.client.gates()).gates == []
        assert (await suite.client.gate(*gate)).state == "cancelled"


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_new_message_answers_an_open_gate_with_its_default_if_the_agent_says_so(
    kind: str, serve: Serve
) -> None:
    async with waiting_run(serve, {}, kind, keys={}, onNewMessage="answer_default") as (suite, gate, run):
        async with ask_again_in_chat(suite, await suite.client.gate(*gate)) as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        first = await run
        assert first[-1]["type"] == "run.complete"
        if kind == "approval":
            answer = only(first, "approval.answer")
            assert (answer["decision"], "by" in answer) == ("reject", False)
            assert answer["note"].startswith("nobody answered")
        else:
            assert "expired" in str(only(first, "tool.result"))
        assert only(first, "gate.close")["state"] == (await suite.client.gate(*gate)).state == "expired"
        assert (await suite.client.answer_gate(*gate, '{"decision": "approve"}')).status == "expired"


async def test_pass_over_keeps_an_answer_already_accepted() -> None:
    gates = Gates()
    gate = gates.open(agent_pb2.GateOpen(gate_id="t_1"))
    waiting = asyncio.create_task(gate.wait(100))
    await asyncio.sleep(0)
    assert gates.take("t_1", "", "ada") == "accepted"
    gates.pass_over(now_ms())
    gate.fulfil(Submission("1", "ada"))
    assert await waiting == Submission("1", "ada")


async def test_pass_over_ends_only_gates_opened_before_the_given_time() -> None:
    gates = Gates()
    for gate_id, opened_at in (("t_1", 1000), ("t_2", 3000)):
        gates.open(agent_pb2.GateOpen(gate_id=gate_id), opened_at)
    gates.pass_over(2000)
    assert await gates.get("t_1").wait(100) is None
    gates.take("t_2", "", "ada")
    gates.get("t_2").fulfil(Submission("1", "ada"))
    assert await gates.get("t_2").wait(100) == Submission("1", "ada")


async def test_an_ended_gate_is_not_waited_for() -> None:
    gate = Gates().open(agent_pb2.GateOpen(gate_id="t_1"))
    gate.end()  # As read from the log.
    assert await gate.wait(100) is None


@pytest.mark.parametrize(("fields", "when_busy"), [({}, None), ({"onNewMessage": "cancel"}, "enqueue")])
async def test_a_new_message_waits_by_default_and_with_when_busy_enqueue(
    fields: dict[str, Any], when_busy: str | None, serve: Serve
) -> None:
    async with waiting_run(serve, {}, "form", keys={}, **fields) as (suite, gate, run):
        async with ask_again_in_chat(suite, await suite.client.gate(*gate), when_busy=when_busy) as deltas:
            await anext(deltas)  # The query is stored, and waits.
            assert (await suite.client.gate(*gate)).state == "open"
            await suite.client.answer_gate(*gate, "1")
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.complete"


async def test_a_run_with_another_call_at_work_is_not_cancelled(serve: Serve) -> None:
    turn = call("act", '{"at": 1}') + call("look", '{"at": 2}', index=1, call_id="call_2") + finish("tool_calls")
    fields: dict[str, Any] = {"toolConfig": {"backends": ["act", "look"]}, "react": {"parallelToolCalls": True}}
    async with serve(turn, ANSWER, onNewMessage="cancel", **fields) as suite:
        offer(suite, {})
        looked = asyncio.Event()

        async def execute(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
            if request.tool_name == "look":
                await looked.wait()
            yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="{}"))

        suite.tools.execute = execute
        async with (
            reading_run(suite.client) as (gate, _, run),
            ask_again_in_chat(suite, await suite.client.gate(*gate)) as deltas,
        ):
            await anext(deltas)
            assert (await suite.client.gate(*gate)).state == "open"
            looked.set()
            await suite.client.answer_gate(*gate, '{"decision": "approve"}')
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.complete"


@pytest.mark.parametrize("when_busy", [None, "interrupt"])
async def test_after_a_takeover_the_next_owner_cancels_the_waiting_run(when_busy: str | None, serve: Serve) -> None:
    fields: dict[str, Any] = LISTED | ({} if when_busy else {"onNewMessage": "cancel"})
    async with serve(asking("form"), ANSWER, keys=KEYS, **fields) as suite, two_replicas(suite) as (a, b):
        offer(suite, {}, "form")
        crashes, follower, second = Crashes(suite), GateFollower(), ""
        before = suite.memory.before
        assert before is not None

        async def die_at_end(request: memory_pb2.AppendRequest) -> None:
            nonlocal second
            if any(line.HasField("query") for line in request.lines):
                second = request.run_id
            if not request.generation and any(line.HasField("run") for line in request.lines):
                crashes.kill(request.run_id)
                crashes.kill(second)
            await before(request)

        suite.memory.before = die_at_end
        async with as_user(a.address, "ada") as ada:
            run = asyncio.create_task(follower.follow(ada))
            gate = await follower.gate
            chat_id = (await ada.gate(*gate)).chat_id
            with suppress(HeadraceError):
                async with ada.ask("and now?", agent_key="react", chat_id=chat_id, when_busy=when_busy) as deltas:
                    _ = [delta async for delta in deltas]
            await a.stop()
            with suppress(HeadraceError):
                await run
        async with as_user(b.address, "ada") as ada, asyncio.timeout(60):
            assert (await read(ada, gate[0]))[-1]["type"] == "run.cancel"
            assert (await read(ada, second))[-1]["type"] == "run.complete"
            assert (await ada.gate(*gate)).state == "cancelled"
