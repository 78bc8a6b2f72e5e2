"""A chat that is asked something new: its runs go on, are cancelled or taken back; reverted runs are gone."""

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
from tests.support.orchestrator.gate_runs import Asked, reading_run, waiting_run
from tests.support.orchestrator.steps import ANSWER, Step, answer, call_tool, content
from tests.support.waiting import wait_until

HANGING: list[Step] = [*content("Hel"), 3600.0]


def said(suite: Suite, number: int = -1) -> list[str]:
    """The texts of a request, without its system message."""
    messages = list(suite.llm.requests[number].messages)
    return ["".join(part.text for part in message.content) for message in messages]


@asynccontextmanager
async def hanging(suite: Suite, message: str, until: str = "content.delta") -> AsyncGenerator[list[dict[str, Any]]]:
    """A run of the suite's chat that has got so far; its events, all of them after the block."""
    async with suite.client.ask(message, agent_key="react", chat_id=suite.chat_id) as deltas:
        events = await read_until(deltas, until)
        yield events
        events += [as_json(delta) async for delta in deltas]


@pytest.mark.parametrize(("turn", "until"), [(HANGING, "content.delta"), (call_tool("slow"), "tool.output")])
async def test_the_running_run_is_taken_back(serve: Serve, turn: list[Step], until: str) -> None:
    async with serve(ANSWER, turn, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong", until) as cancelled:
            events = await suite.ask("right", when_busy="rollback")
        assert cancelled[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(suite) == ["one", "All good.", "right"]
        await suite.ask("and now?")
        assert said(suite) == ["one", "All good.", "right", "All good.", "and now?"]
        assert_paired(suite.llm.requests[-1])
        shown = [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]
        asked = [event["message"] for event in shown if event["type"] == "request.query"]
        assert asked == ["one", "wrong", "right", "and now?"]
        assert "run.cancel" in types(shown)


async def test_those_that_wait_are_taken_back_too(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            waiting = asyncio.create_task(suite.ask("wrong too"))
            await asyncio.sleep(0.1)
            events = await suite.ask("right", when_busy="rollback")
            assert (await waiting)[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(suite) == ["one", "All good.", "right"]


async def test_one_rollback_after_another(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            second = asyncio.create_task(suite.ask("wrong again", when_busy="rollback"))
            await wait_until(lambda: len(suite.llm.requests) >= 3)
            await suite.ask("right", when_busy="rollback")
            assert (await second)[-1]["type"] == "run.cancel"
        assert said(suite) == ["one", "All good.", "right"]


async def test_rollbacks_that_follow_at_once(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            asked = [asyncio.create_task(suite.ask(f"no {n}", when_busy="rollback")) for n in range(5)]
            await asyncio.sleep(0)
            await suite.ask("right", when_busy="rollback")
            await asyncio.wait(asked)
        assert said(suite)[:2] == ["one", "All good."]
        assert "wrong" not in said(suite)
        await suite.ask("and now?")
        assert "wrong" not in said(suite)
        assert_paired(suite.llm.requests[-1])


async def test_a_chat_that_is_not_busy_has_nothing_to_take_back(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask("one")
        await suite.ask("two", when_busy="rollback")
    assert said(suite) == ["one", "All good.", "two"]


async def test_an_interrupted_run_stays_in_the_view(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "two"):
            await suite.ask("three", when_busy="interrupt")
    assert said(suite) == ["one", "All good.", "two", "Hel", "three"]


async def test_a_reverted_run_is_not_found(serve: Serve) -> None:
    async with serve(answer("a")) as suite:
        run_id = run_of(await suite.ask(record=True))
        assert await suite.client.cassette(run_id)
        await suite.client.revert(suite.chat_id, 0)
        for refused in (
            read(suite.client, run_id),
            suite.client.steer(run_id, "go on"),
            suite.client.cancel(run_id),
            suite.client.cassette(run_id),
        ):
            with pytest.raises(NotFound, match="reverted"):
                await refused


def ask_anew(suite: Suite, gate: gates_pb2.Gate, **fields: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    return suite.client.ask("and now?", agent_key="react", chat_id=gate.chat_id, **fields)


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_new_message_cancels_a_run_that_waits_where_the_agent_says_so(kind: str, serve: Serve) -> None:
    async with waiting_run(serve, {}, kind, keys={}, onNewMessage="cancel") as (suite, gate, run):
        async with ask_anew(suite, await suite.client.gate(*gate)) as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.cancel"
        assert (await suite.client.gates()).gates == []
        assert (await suite.client.gate(*gate)).state == "cancelled"


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_new_message_answers_with_the_default_where_the_agent_says_so(kind: str, serve: Serve) -> None:
    async with waiting_run(serve, {}, kind, keys={}, onNewMessage="answer_default") as (suite, gate, run):
        async with ask_anew(suite, await suite.client.gate(*gate)) as deltas:
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


async def test_an_answer_that_is_under_way_is_not_passed_over() -> None:
    gates = Gates()
    gate = gates.open(agent_pb2.GateOpen(gate_id="t_1"))
    waiting = asyncio.create_task(gate.wait(100))
    await asyncio.sleep(0)
    assert gates.take("t_1", "", "ada") == "accepted"
    gates.pass_over(now_ms())
    gate.fulfil(Submission("1", "ada"))
    assert await waiting == Submission("1", "ada")


async def test_a_gate_that_is_waited_at_later_is_passed_over_where_it_was_open_before() -> None:
    gates = Gates()
    for gate_id, opened_at in (("t_1", 1000), ("t_2", 3000)):
        gates.open(agent_pb2.GateOpen(gate_id=gate_id), opened_at)
    gates.pass_over(2000)
    assert await gates.get("t_1").wait(100) is None
    gates.take("t_2", "", "ada")
    gates.get("t_2").fulfil(Submission("1", "ada"))
    assert await gates.get("t_2").wait(100) == Submission("1", "ada")


async def test_what_was_passed_over_is_not_waited_for_again() -> None:
    gate = Gates().open(agent_pb2.GateOpen(gate_id="t_1"))
    gate.end()  # as the log says
    assert await gate.wait(100) is None


@pytest.mark.parametrize(("fields", "when_busy"), [({}, None), ({"onNewMessage": "cancel"}, "enqueue")])
async def test_a_message_waits_unless_the_agent_says_otherwise_and_where_it_says_so_itself(
    fields: dict[str, Any], when_busy: str | None, serve: Serve
) -> None:
    async with waiting_run(serve, {}, "form", keys={}, **fields) as (suite, gate, run):
        async with ask_anew(suite, await suite.client.gate(*gate), when_busy=when_busy) as deltas:
            await anext(deltas)  # it is stored, and waits
            assert (await suite.client.gate(*gate)).state == "open"
            await suite.client.answer_gate(*gate, "1")
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.complete"


async def test_a_run_whose_other_call_works_is_not_cancelled(serve: Serve) -> None:
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
            ask_anew(suite, await suite.client.gate(*gate)) as deltas,
        ):
            await anext(deltas)
            assert (await suite.client.gate(*gate)).state == "open"
            looked.set()
            await suite.client.answer_gate(*gate, '{"decision": "approve"}')
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await run)[-1]["type"] == "run.complete"


@pytest.mark.parametrize("when_busy", [None, "interrupt"])
async def test_the_next_owner_cancels_what_the_one_that_was_killed_was_to(when_busy: str | None, serve: Serve) -> None:
    fields: dict[str, Any] = LISTED | ({} if when_busy else {"onNewMessage": "cancel"})
    async with serve(asking("form"), ANSWER, keys=KEYS, **fields) as suite, two_replicas(suite) as (a, b):
        offer(suite, {}, "form")
        crashes, asked, second = Crashes(suite), Asked(), ""
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
            run = asyncio.create_task(asked.follow(ada))
            gate = await asked.gate
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
