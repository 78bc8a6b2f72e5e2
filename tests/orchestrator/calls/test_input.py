"""Gates for what the servers of tools ask: answered, declined, expired, answered after the owner has died."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, ask, kinds, only, tool
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.requests import last_result
from tests.support.orchestrator.steps import ANSWER, call_tool
from tests.support.order import Event

LISTED = {"toolConfig": {"backends": ["book"]}}
SCHEMA = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
SEATS = common_pb2.InputNeed(name="1-0", server="tables", message="How many seats?", schema=json.dumps(SCHEMA))
PAY = common_pb2.InputNeed(name="2-0", server="tables", message="Pay the deposit", url="https://pay.example/7")


async def execute(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """What the tools service does: it asks for seats and then for a deposit, each until that is answered."""
    said = {answer.name: answer for answer in request.answers}
    missing = next((need for need in (SEATS, PAY) if need.name not in said), None)
    if missing is not None and all(answer.action == "accept" for answer in said.values()):
        outcome = tools_pb2.ToolOutcome(ok=False, result="waits", asks=[missing])
    else:
        text = " ".join(f"{answer.name} {answer.action} {answer.content}".strip() for answer in said.values())
        outcome = tools_pb2.ToolOutcome(ok=True, result=text)
    yield tools_pb2.ToolDelta(sampling=tools_pb2.ToolSampling(message="it has asked the model"))
    yield tools_pb2.ToolDelta(result=outcome)


def offer(suite: Suite) -> None:
    suite.tools.tools.append(tool("book", "backend"))
    suite.tools.execute = execute


ASKING = call_tool("book", '{"table": 1}')


async def answer(suite: Suite, payload: Any) -> str:
    [gate] = (await suite.client.gates(scope="own")).gates
    return (await suite.client.answer_gate(gate.run_id, gate.gate_id, json.dumps(payload))).status


async def test_each_question_is_a_form_and_the_call_goes_on_with_the_answers(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)

        async def say_seats(opened: Event) -> None:
            assert (opened["kind"], opened["toolName"]) == ("form", "book")
            assert opened["reason"] == "tables asks: How many seats?"
            assert opened["resultSchema"] == SCHEMA
            [gate] = (await suite.client.gates(scope="own")).gates
            assert (await suite.client.gate(gate.run_id, gate.gate_id)).ask == SEATS
            with pytest.raises(InvalidRequest, match="schema"):
                await answer(suite, {"seats": "many"})
            assert await answer(suite, {"seats": 4}) == "accepted"

        async def pay(opened: Event) -> None:
            assert opened["reason"] == "tables asks: Pay the deposit (https://pay.example/7)"
            assert opened["ask"]["url"] == PAY.url
            assert await answer(suite, {"done": True}) == "accepted"

        events = await ask(suite, ("gate.open", say_seats), ("gate.open", pay))
        assert last_result(suite) == '1-0 accept {"seats": 4} 2-0 accept'
    assert kinds(events, "gate") == ["gate.open", "gate.close"] * 2
    notices = [event for event in events if event["type"] == "run.notice" and event["code"] == "SAMPLING"]
    assert len(notices) == 3


async def test_who_does_not_answer_declines(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)

        async def decline(_: Event) -> None:
            assert await answer(suite, {"cancelled": True}) == "accepted"

        await ask(suite, ("gate.open", decline))
        assert last_result(suite) == "1-0 decline"


async def test_nobody_in_time_dismisses_the_question(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 50")
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask(suite)
        assert last_result(suite) == "1-0 cancel"
    assert only(events, "gate.close")["state"] == "expired"


async def test_a_server_that_asks_on_and_on_is_ended(serve: Serve) -> None:
    async def ask_on(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        first = len(request.answers)
        needs = [common_pb2.InputNeed(name=str(number), server="s", message="?") for number in range(first, first + 65)]
        yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="waits", asks=needs))

    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)
        suite.tools.execute = ask_on
        events = await ask(suite)
        assert "TOO_MANY_QUESTIONS" in last_result(suite)
    assert kinds(events, "gate") == []


async def test_who_takes_the_run_over_goes_on_with_what_was_answered(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        crashes = Crashes(suite)
        asked: list[str] = []

        async def follow() -> None:
            async with suite.client.ask("hello", agent_key="react") as deltas:
                async for delta in deltas:
                    if delta.HasField("gate_open"):
                        [gate] = (await suite.client.gates(scope="own")).gates
                        asked.append(gate.run_id)
                        crashes.kill_at(crashes.appends[gate.run_id] + 1)  # the answer is kept, and nothing after it
                        assert await answer(suite, {"seats": 3}) == "accepted"

        following = asyncio.create_task(follow())
        await asyncio.wait([following])
        await suite.stop()
        async with restart(suite) as client, asyncio.timeout(100):
            while not (gates := [gate for gate in (await client.gates(scope="own")).gates if gate.state == "open"]):
                await asyncio.sleep(0.02)
            assert (await client.gate(gates[0].run_id, gates[0].gate_id)).ask == PAY, "the first is not asked again"
            await client.answer_gate(gates[0].run_id, gates[0].gate_id, '{"done": false}')
            async with client.attach(asked[0]) as deltas:
                opened = [delta.gate_open.gate_id async for delta in deltas if delta.HasField("gate_open")]
        assert last_result(suite) == '1-0 accept {"seats": 3} 2-0 decline'
    assert len(opened) == 2
