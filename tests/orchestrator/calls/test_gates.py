"""Gates in events and in the log: how they are opened, listed and answered, and which payloads they accept."""

import asyncio
import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import gates_pb2, memory_pb2
from tests.support.orchestrator import (
    Serve,
    Suite,
    answers,
    ask,
    call,
    finish,
    kinds,
    last_result,
    only,
    submit,
    submits,
    tool,
)
from tests.support.orchestrator.gates import GATES, LISTED, SECRET, asking, offer
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, call_tool
from tests.support.order import Event, fold


@pytest.mark.parametrize("kind", GATES)
async def test_an_open_gate_is_listed_and_its_answer_becomes_the_runs(kind: str, serve: Serve) -> None:
    name, arguments, payload = GATES[kind]
    gates_shown: list[gates_pb2.Gate] = []
    async with serve(asking(kind), ANSWER, **LISTED) as suite:
        offer(suite)

        async def answer(opened: Event) -> None:
            [listed] = (await suite.client.gates()).gates
            gates_shown.append(await suite.client.gate(listed.run_id, opened["gateId"]))
            first = await suite.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r1")
            again = await suite.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r1")
            second = await suite.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r2")
            assert [reply.status for reply in (first, again)] == ["accepted", "accepted"]
            assert second.status in ("duplicate", "unmatched"), "unmatched when the run has ended meanwhile"
            assert listed.arguments == ""

        events = await ask(suite, ("gate.open", answer))
        history = await read_recorded(suite, suite.run_ids[0])
        after = await suite.client.gate(suite.run_ids[0], gates_shown[0].gate_id)
        for request_id, status in (("r1", "accepted"), ("r2", "duplicate")):  # The first repeats the accepted answer.
            late = await suite.client.answer_gate(
                suite.run_ids[0], gates_shown[0].gate_id, payload, request_id=request_id
            )
            assert late.status == status
        assert (await suite.client.gates()).gates == []
        assert last_result(suite)
    opened, closed, submitted = (only(events, kind) for kind in ("gate.open", "gate.close", "request.submit"))
    assert (opened["kind"], opened["agentKey"], opened["toolName"]) == (kind, "react", name)
    assert (gates_shown[0].gate_id, gates_shown[0].kind, gates_shown[0].state) == (opened["gateId"], kind, "open")
    assert json.loads(gates_shown[0].arguments) == arguments
    assert (gates_shown[0].opened_at, gates_shown[0].expires_at) == (opened["timestamp"], opened["expiresAt"])
    assert gates_shown[0].viewport_key == {"form": "confirm_view", "question": "ask_human"}.get(kind, "")
    assert (after.state, after.answered_by, after.closed_at) == ("answered", "default", submitted["timestamp"])
    assert json.loads(after.answer) == submitted["payload"]
    assert not gates_shown[0].HasField("answer")
    assert (closed["state"], closed["answeredBy"], closed["gateId"]) == ("answered", "default", opened["gateId"])
    assert kinds(events, "gate", "request.submit") == ["gate.open", "request.submit", "gate.close"]
    assert SECRET not in json.dumps([events, history]), "a secret is in no event"
    assert fold(history) == fold(events)
    for kind_of_event in ("gate.open", "gate.close"):
        assert only(history, kind_of_event) == only(events, kind_of_event)


async def test_a_repeated_answer_gets_its_reply_only_when_the_log_has_it(serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite)
        gate: list[str] = []
        repeated: list[asyncio.Task[gates_pb2.AnswerGateResponse]] = []

        async def before(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("request_submit") for line in request.lines):
                again = suite.client.answer_gate(gate[0], gate[1], "1", request_id="r1")
                repeated.append(group.create_task(again))
                await asyncio.sleep(0.05)
                assert not repeated[0].done()

        async def answer(opened: Event) -> None:
            gate[:] = [opened["runId"], opened["gateId"]]
            suite.memory.before = before
            assert (await suite.client.answer_gate(gate[0], gate[1], "1", request_id="r1")).status == "accepted"

        await ask(suite, ("gate.open", answer))
        assert (await repeated[0]).status == "accepted"


async def test_an_answer_before_the_call_is_complete_opens_no_gate(serve: Serve) -> None:
    early = [*call("confirm", '{"q":1}'), 0.3, *finish("tool_calls")]
    async with serve(early, ANSWER, **LISTED) as suite:
        offer(suite)

        async def answer(event: Event) -> None:
            assert (await suite.client.answer_gate(event["runId"], event["toolId"], "1")).status == "accepted"

        events = await ask(suite, ("tool.start", answer))
        assert last_result(suite) == "1"
    assert kinds(events, "gate") == []


async def test_an_unknown_gate_is_unmatched_or_not_found(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, **LISTED) as suite:
        offer(suite)

        async def answer(opened: Event) -> None:
            run_id = opened["runId"]
            assert (await suite.client.answer_gate(run_id, "t_none", "1")).status == "unmatched"
            with pytest.raises(NotFound, match="no gate 't_none'"):
                await suite.client.gate(run_id, "t_none")
            with pytest.raises(InvalidRequest, match="decision"):
                await suite.client.answer_gate(run_id, opened["gateId"], '{"decision": "perhaps"}')
            assert (await suite.client.answer_gate(run_id, opened["gateId"], '{"decision": "reject"}')).accepted

        await ask(suite, ("gate.open", answer))
        assert json.loads(last_result(suite))["error"] == "rejected"


FORMS = {"toolConfig": {"frontends": ["confirm", "ask_human"]}}

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "items": {"items": {"properties": {"n": {"maximum": 9}}}}},
    "required": ["size"],
    "additionalProperties": False,
}
CHOICES = {"question": "Which?", "choices": ["tea", "milk"]}

CASES: dict[str, tuple[str, Any, Any, list[tuple[Any, str]]]] = {
    "a form": (
        "confirm",
        {},
        {"size": "large", "items": [{"n": 1}]},
        [
            ({"size": "secret"}, r'\$\.size: it is not one of "small" or "large" \(rule: enum\)'),
            ({"size": "small", "items": [{"n": 1}, {"n": 10}]}, r"\$\.items\[1\]\.n: .* \(rule: maximum\)"),
            ({}, r'\$: "size" is a required property \(rule: required\)'),
            ({"size": "small", "more": 1}, r"\(rule: additionalProperties\)"),
            ("secret", r"\$: it is not of type"),
        ],
    ),
    "a question": (
        "ask_human",
        {"question": "Which?"},
        {"answer": "this"},
        [(3, r"\$: .* \(rule: type\)"), ({"answer": 3}, r"\$\.answer: .*type"), ({}, r"\(rule: required\)")],
    ),
    "a question's text": ("ask_human", {"question": "Which?"}, "this", [(None, "rule: type")]),
    "a choice": (
        "ask_human",
        CHOICES,
        {"answer": "milk"},
        [({"answer": "secret"}, r"\$\.answer: .*enum"), ("secret", "enum")],
    ),
    "the default of a choice": ("ask_human", CHOICES | {"default": "any"}, "any", [("", "enum")]),
    "no choice where none is required": ("ask_human", CHOICES | {"required": False}, "", [("x", "enum")]),
}


def offer_form(suite: Suite, **fields: Any) -> None:
    suite.tools.tools.append(tool("confirm", "frontend", timeout_ms=100_000, viewport_key="view", **fields))


def call_with(name: str, arguments: Any) -> list[Any]:
    return call_tool(name, json.dumps(arguments))


@pytest.mark.parametrize(("name", "arguments", "good", "refused"), CASES.values(), ids=CASES)
async def test_a_payload_that_breaks_the_schema_is_refused_and_the_gate_stays_open(
    name: str, arguments: Any, good: Any, refused: list[tuple[Any, str]], serve: Serve
) -> None:
    async with serve(call_with(name, arguments), ANSWER, **FORMS) as suite:
        offer_form(suite, result_schema=json.dumps(SCHEMA))

        async def answer(opened: Event) -> None:
            for payload, problem in refused:
                with pytest.raises(InvalidRequest, match=problem) as caught:
                    await answers(suite, payload)(opened)
                assert "secret" not in str(caught.value), "the error does not repeat the payload"
                with pytest.raises(InvalidRequest, match=problem):
                    await submit(suite, opened["runId"], opened["gateId"], payload)
            assert (await suite.client.gate(opened["runId"], opened["gateId"])).state == "open"
            await answers(suite, good)(opened)

        events = await ask(suite, ("gate.open", answer))
        assert last_result(suite) == (good if isinstance(good, str) else json.dumps(good))
    assert kinds(events, "gate", "request.submit") == ["gate.open", "request.submit", "gate.close"]
    opened = only(events, "gate.open")
    assert opened["resultSchema"] == SCHEMA if name == "confirm" else "if" in opened["resultSchema"]


async def test_an_answer_before_its_gate_opens_is_checked_too(serve: Serve) -> None:
    async with serve(call_with("confirm", {}), ANSWER, **FORMS) as suite:
        offer_form(suite, result_schema=json.dumps(SCHEMA))

        async def answer(tool_start: Event) -> None:
            with pytest.raises(InvalidRequest, match="rule: required"):
                await submits(suite, {})(tool_start)
            await submits(suite, {"size": "small"})(tool_start)

        await ask(suite, ("tool.start", answer))
        assert json.loads(last_result(suite)) == {"size": "small"}


@pytest.mark.parametrize("payload", [None, 1, "x", [], {"any": ["thing"]}], ids=repr)
async def test_without_a_schema_any_json_is_accepted(payload: Any, serve: Serve) -> None:
    async with serve(call_with("confirm", {}), ANSWER, **FORMS) as suite:
        offer_form(suite)
        events = await ask(suite, ("gate.open", answers(suite, payload)))
        assert last_result(suite) == (payload if isinstance(payload, str) else json.dumps(payload))
    assert "resultSchema" not in only(events, "gate.open")
