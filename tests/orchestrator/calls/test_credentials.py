"""Gates for missing credentials and for questions of tool servers: answered, refused, expired, and after a takeover."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, answers, ask, call, finish, kinds, last_result, only, read, tool
from tests.support.orchestrator.files import find_text
from tests.support.orchestrator.gate_runs import owner_dying_after
from tests.support.orchestrator.gates import LISTED, NEED, SECRET, asking, offer
from tests.support.orchestrator.steps import ANSWER, call_tool
from tests.support.order import Event

BAD = "bad-one"


def supply(secret: str = SECRET) -> dict[str, str]:
    return {"decision": "supply", "secret": secret}


async def test_a_credential_gate_names_the_need_and_its_secret_is_stored_nowhere(serve: Serve, tmp_path: Path) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)

        async def supply_it(opened: Event) -> None:
            need = opened["need"]
            assert (need["name"], need["description"], need["obtain"]) == (NEED.name, NEED.description, NEED.obtain)
            assert (need["problem"], opened["reason"]) == ("missing", "github is missing: A token of GitHub")
            [gate] = (await suite.client.gates(scope="own")).gates
            assert (await suite.client.gate(gate.run_id, gate.gate_id)).need.obtain == NEED.obtain
            await answers(suite, supply())(opened)

        events = await ask(suite, ("gate.open", supply_it), record=True)
        assert last_result(suite) == "fetch has run"
        async with suite.client.export_gates(suite.chat_id, with_content=True) as lines:
            audit = [line async for line in lines]
        cassette = await suite.client.cassette(suite.run_ids[0])
    assert only(events, "request.submit")["payload"] == {"decision": "supply", "secret": "***"}
    assert any("***" in line for line in audit), "the audit says that a secret was supplied"
    for text in (json.dumps(events), *audit, str(suite.llm.raw_requests), str(cassette)):
        assert SECRET not in text
    assert find_text(tmp_path, SECRET) == []
    assert find_text(tmp_path, "fetch has run"), "the search finds what is there"


async def test_a_refused_credential_is_asked_for_again(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        secrets = [BAD, BAD, SECRET]

        async def supply_next(opened: Event) -> None:
            assert opened["need"]["problem"] == ("missing" if len(secrets) == 3 else "refused")
            await answers(suite, supply(secrets.pop(0)))(opened)

        events = await ask(suite, *[("gate.open", supply_next)] * 3)
        assert last_result(suite) == "fetch has run"
    assert len({event["gateId"] for event in events if event["type"] == "gate.open"}) == 3


async def test_the_note_of_a_rejected_credential_reaches_the_model(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        reject = {"decision": "reject", "note": "use the public one"}
        await ask(suite, ("gate.open", answers(suite, reject)))
        assert "CREDENTIAL_MISSING" in last_result(suite)
        assert "use the public one" in last_result(suite)
        assert len(suite.tools.requests) == 1


async def test_an_expired_credential_gate_fails_the_call(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 50")
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask(suite)
        assert "nobody answered in time" in last_result(suite)
    assert only(events, "gate.close")["state"] == "expired"


async def test_parallel_calls_share_one_credential_gate(serve: Serve) -> None:
    both = [
        step
        for number in ("1", "2")
        for step in call("fetch", f'{{"n": {number}}}', index=int(number) - 1, call_id=number)
    ]
    async with serve([*both, *finish("tool_calls")], ANSWER, **LISTED, react={"parallelToolCalls": True}) as suite:
        offer(suite)
        events = await ask(suite, ("gate.open", answers(suite, supply())))
        assert len(suite.tools.requests) == 4
    assert kinds(events, "gate") == ["gate.open", "gate.close"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ('{"decision": "supply"}', "payload.secret"),
        ('{"decision": "reject", "secret": "hunter2-of-ada"}', "payload.secret"),
        ('{"decision": "supply", "secret": " hunter2-of-ada"}', "payload.secret"),
        ('{"decision": "supply", "secret": "' + "hunter2-of-ada" * 200 + '"}', "payload.secret"),
        ('{"decision": "supply", "secret": "short"}', "payload.secret"),
        ('{"decision": "approve"}', "payload"),
        ('"hunter2-of-ada"', "payload"),
    ],
)
async def test_an_invalid_credential_answer_is_refused_without_echoing_it(
    payload: str, field: str, serve: Serve
) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)

        async def try_it(opened: Event) -> None:
            with pytest.raises(InvalidRequest) as refused:
                await suite.client.answer_gate(opened["runId"], opened["gateId"], payload)
            assert refused.value.metadata["field"] == field
            assert SECRET not in str(refused.value)
            await answers(suite, supply())(opened)

        await ask(suite, ("gate.open", try_it))
        assert last_result(suite) == "fetch has run"


async def test_after_a_takeover_a_credential_that_was_lost_is_asked_for_again(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with owner_dying_after(suite, json.dumps(supply())) as (client, gate):
            assert gate.kind == "credential"
            await client.answer_gate(gate.run_id, gate.gate_id, json.dumps(supply()))
            events = await read(client, gate.run_id)
        assert last_result(suite) == "fetch has run"
    opened = [event["gateId"] for event in events if event["type"] == "gate.open"]
    closed = [event["gateId"] for event in events if event["type"] == "gate.close"]
    assert len(set(opened)) == 2
    assert sorted(opened) == sorted(closed)


BOOKING = {"toolConfig": {"backends": ["book"]}}
SEATS_SCHEMA = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
SEATS = common_pb2.InputNeed(name="1-0", server="tables", message="How many seats?", schema=json.dumps(SEATS_SCHEMA))
PAY = common_pb2.InputNeed(name="2-0", server="tables", message="Pay the deposit", url="https://pay.example/7")


async def book(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Act as the tools service: ask for seats, then for a deposit, until each is answered."""
    answers_by_name = {answer.name: answer for answer in request.answers}
    missing = next((need for need in (SEATS, PAY) if need.name not in answers_by_name), None)
    if missing is not None and all(answer.action == "accept" for answer in answers_by_name.values()):
        outcome = tools_pb2.ToolOutcome(ok=False, result="waits", asks=[missing])
    else:
        text = " ".join(
            f"{answer.name} {answer.action} {answer.content}".strip() for answer in answers_by_name.values()
        )
        outcome = tools_pb2.ToolOutcome(ok=True, result=text)
    yield tools_pb2.ToolDelta(sampling=tools_pb2.ToolSampling(message="it has asked the model"))
    yield tools_pb2.ToolDelta(result=outcome)


def offer_booking(suite: Suite) -> None:
    suite.tools.tools.append(tool("book", "backend"))
    suite.tools.execute = book


ASKING = call_tool("book", '{"table": 1}')


async def test_each_question_is_a_form_and_the_call_continues_with_the_answers(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **BOOKING) as suite:
        offer_booking(suite)

        async def say_seats(opened: Event) -> None:
            assert (opened["kind"], opened["toolName"]) == ("form", "book")
            assert opened["reason"] == "tables asks: How many seats?"
            assert opened["resultSchema"] == SEATS_SCHEMA
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


async def test_a_cancelled_form_declines_the_question(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **BOOKING) as suite:
        offer_booking(suite)
        await ask(suite, ("gate.open", answers(suite, {"cancelled": True})))
        assert last_result(suite) == "1-0 decline"


async def test_an_expired_form_cancels_the_question(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 50")
    async with serve(ASKING, ANSWER, **BOOKING) as suite:
        offer_booking(suite)
        events = await ask(suite)
        assert last_result(suite) == "1-0 cancel"
    assert only(events, "gate.close")["state"] == "expired"


async def test_a_call_whose_server_asks_too_many_questions_fails(serve: Serve) -> None:
    async def ask_on(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        first = len(request.answers)
        needs = [common_pb2.InputNeed(name=str(number), server="s", message="?") for number in range(first, first + 65)]
        yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="waits", asks=needs))

    async with serve(ASKING, ANSWER, **BOOKING) as suite:
        offer_booking(suite)
        suite.tools.execute = ask_on
        events = await ask(suite)
        assert "TOO_MANY_QUESTIONS" in last_result(suite)
    assert kinds(events, "gate") == []


async def test_after_a_takeover_the_call_continues_with_the_answers_given(serve: Serve) -> None:
    async with serve(ASKING, ANSWER, **BOOKING) as suite:
        offer_booking(suite)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with owner_dying_after(suite, '{"seats": 3}') as (client, gate):
            assert (await client.gate(gate.run_id, gate.gate_id)).ask == PAY, "the first is not asked again"
            await client.answer_gate(gate.run_id, gate.gate_id, '{"done": false}')
            events = await read(client, gate.run_id)
        assert last_result(suite) == '1-0 accept {"seats": 3} 2-0 decline'
    assert kinds(events, "gate.open") == ["gate.open"] * 2
