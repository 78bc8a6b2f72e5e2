"""What becomes of a run that waits for a person when its chat is asked something new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2, gates_pb2, memory_pb2, tools_pb2
from services.orchestrator.run.control.waits import Submission, Waits
from services.runtime.clock import now_ms
from tests.support.orchestrator import ANSWER, Serve, Suite, call, finish, only, read, two_replicas
from tests.support.orchestrator.answerers import KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.gate_runs import Asked, reading_run, waiting_run


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
    waits = Waits()
    waits.expect(agent_pb2.GateOpen(gate_id="t_1"))
    waiting = asyncio.create_task(waits.wait("t_1", 100))
    await asyncio.sleep(0)
    assert waits.claim("t_1", "", "ada") == "accepted"
    waits.pass_over(now_ms())
    waits.fulfil("t_1", Submission("1", "ada"))
    assert await waiting == Submission("1", "ada")


async def test_a_gate_that_is_waited_at_later_is_passed_over_where_it_was_open_before() -> None:
    waits = Waits()
    for gate_id, opened_at in (("t_1", 1000), ("t_2", 3000)):
        waits.expect(agent_pb2.GateOpen(gate_id=gate_id), opened_at=opened_at)
    waits.pass_over(2000)
    assert await waits.wait("t_1", 100) is None
    waits.claim("t_2", "", "ada")
    waits.fulfil("t_2", Submission("1", "ada"))
    assert await waits.wait("t_2", 100) == Submission("1", "ada")


async def test_what_was_passed_over_is_not_waited_for_again() -> None:
    waits = Waits()
    waits.expect(agent_pb2.GateOpen(gate_id="t_1"))
    waits.end("t_1")  # as the log says
    assert await waits.wait("t_1", 100) is None


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
