"""Gates for what the servers of tools ask: answered, declined, expired, answered after the owner has died."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, answers, ask, kinds, last_result, only, read, tool
from tests.support.orchestrator.gate_runs import owner_dying_after
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


async def test_each_question_is_a_form_and_the_call_goes_on_with_the_answers(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)

        async def say_seats(opened: Event) -> None:
            assert (opened["kind"], opened["toolName"]) == ("form", "book")
            assert opened["reason"] == "tables asks: How many seats?"
            assert opened["resultSchema"] == SCHEMA
            assert (await suite.client.gate(opened["runId"], opened["gateId"])).ask == SEATS
            with pytest.raises(InvalidRequest, match="schema"):
                await answers(suite, {"seats": "many"})(opened)
            await answers(suite, {"seats": 4})(opened)

        async def pay(opened: Event) -> None:
            assert opened["reason"] == "tables asks: Pay the deposit (https://pay.example/7)"
            assert opened["ask"]["url"] == PAY.url
            await answers(suite, {"done": True})(opened)

        events = await ask(suite, ("gate.open", say_seats), ("gate.open", pay))
        assert last_result(suite) == '1-0 accept {"seats": 4} 2-0 accept'
    assert kinds(events, "gate") == ["gate.open", "gate.close"] * 2
    notices = [event for event in events if event["type"] == "run.notice" and event["code"] == "SAMPLING"]
    assert len(notices) == 3


async def test_who_does_not_answer_declines(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **LISTED) as suite:
        offer(suite)
        await ask(suite, ("gate.open", answers(suite, {"cancelled": True})))
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
        async with owner_dying_after(suite, '{"seats": 3}') as (client, gate):
            assert (await client.gate(gate.run_id, gate.gate_id)).ask == PAY, "the first is not asked again"
            await client.answer_gate(gate.run_id, gate.gate_id, '{"done": false}')
            events = await read(client, gate.run_id)
        assert last_result(suite) == '1-0 accept {"seats": 3} 2-0 decline'
    assert kinds(events, "gate.open") == ["gate.open"] * 2
