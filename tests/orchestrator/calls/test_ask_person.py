"""A person decides about a call: they approve, edit or reject it, nobody answers, or the run is cancelled."""

import json
from typing import Any

import pytest

from tests.support.orchestrator import Serve, Suite, ask, kinds, last_result, only, state, submits, tool
from tests.support.orchestrator.gate_runs import wait_for_rules
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, call, call_tool, finish
from tests.support.order import Event, fold
from tests.support.timing import within

ACT = call_tool("act", '{"at":1}')
LISTED = {"toolConfig": {"backends": ["look", "act", "never"]}}
PARALLEL = {"react": {"parallelToolCalls": True}}


def offer(suite: Suite, rules: str | None = None) -> None:
    suite.tools.tools += [tool("act", "backend", approval="ask"), tool("never", "backend", approval="deny")]
    if rules is not None:
        (suite.agents.parent / "approvals.yaml").write_text(rules)


async def ask_with_answers(suite: Suite, *answers: dict[str, Any], **fields: Any) -> list[Event]:
    """Ask a question whose approvals get these answers in order; return the run's events."""
    return await ask(suite, *[("approval.ask", submits(suite, payload)) for payload in answers], **fields)


async def test_an_approved_call_runs_and_the_log_has_ask_and_answer(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask_with_answers(suite, {"decision": "approve", "by": "Ada"})
        history = await read_recorded(suite, suite.run_ids[0])
        assert last_result(suite) == 'seen {"at":1}'
    approval_ask, approval_answer = only(events, "approval.ask"), only(events, "approval.answer")
    assert (approval_ask["toolId"], approval_ask["reason"], approval_ask["risk"]) == (
        "call_1",
        "act is defined with approval ask",
        "low",
    )
    # Without credentials everybody is one user, whatever name the payload has; that stays in it as it was sent.
    assert (approval_answer["decision"], approval_answer["by"], "credential" in approval_answer) == (
        "approve",
        "default",
        False,
    )
    submitted = only(events, "request.submit")
    assert (submitted["by"], submitted["payload"]) == ("default", {"decision": "approve", "by": "Ada"})
    assert kinds(events, "approval", "request.submit") == ["approval.ask", "request.submit", "approval.answer"]
    for kind in ("approval.ask", "approval.answer", "request.submit"):
        assert only(history, kind) == only(events, kind)
    assert fold(history) == fold(events)


async def test_an_edited_call_runs_with_the_new_arguments_and_its_result_says_so(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite)
        big = 123456789012345678901
        await ask_with_answers(suite, {"decision": "edit", "arguments": {"at": big}, "note": "not there"})
        [request] = suite.tools.requests
        assert json.loads(request.arguments) == {"at": big}
        assert last_result(suite).startswith("seen ")
        assert "a person changed the arguments" in last_result(suite)
        assert last_result(suite).endswith("not there]")


async def test_a_rejected_call_does_not_run_and_its_note_reaches_the_model(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite)
        await ask_with_answers(suite, {"decision": "reject", "note": "ask me tomorrow"})
        assert suite.tools.requests == []
        assert last_result(suite) == '{"ok":false,"executed":false,"error":"rejected","message":"ask me tomorrow"}'


async def test_an_expired_approval_approves_if_the_rule_says_so(serve: Serve) -> None:
    async with serve(call_tool("act", '{"at":"x"}'), ANSWER, **LISTED) as suite:
        rule = 'tools: {act: [{pattern: "", argument: at, then: ask, onExpiry: approve}]}'
        offer(suite, f"answerTimeoutMs: 150\n{rule}")
        await wait_for_rules()
        events = await ask(suite)
        assert len(suite.tools.requests) == 1, "the call has run"
        assert "a person" not in last_result(suite), "nobody has answered"
    answer, closed = only(events, "approval.answer"), only(events, "gate.close")
    assert (answer["decision"], "by" in answer, closed["state"]) == ("approve", False, "expired")
    assert answer["note"] == "nobody answered within 0.15 s, and the rule approves then"
    assert only(events, "gate.open")["onExpiry"] == "approve"


async def test_a_denied_call_gets_an_error_result(serve: Serve) -> None:
    async with serve(call_tool("never"), ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask(suite)
        assert suite.tools.requests == []
        assert json.loads(last_result(suite))["error"] == "denied"
    assert kinds(events, "approval") == []


async def test_parallel_calls_are_decided_independently(serve: Serve) -> None:
    three = call("act", '{"n":1}') + call("look", '{"n":2}', index=1, call_id="b")
    three += call("act", '{"n":3}', index=2, call_id="c") + call("never", index=3, call_id="d")
    async with serve(three + finish("tool_calls"), ANSWER, **LISTED, **PARALLEL) as suite:
        offer(suite)
        events = await ask_with_answers(suite, {"decision": "reject"}, {"decision": "approve"})
        results = {event["toolId"]: event["ok"] for event in events if event["type"] == "tool.result"}
        assert last_result(suite)
    assert results.pop("b") is True
    assert results.pop("d") is False
    assert sorted(results.values()) == [False, True]
    assert len(suite.tools.requests) == 2


async def test_a_cancel_while_a_run_waits_for_approval_ends_it_at_once(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite)

        async def cancel(event: Event) -> None:
            assert await state(suite, event["runId"]) == "waiting"
            async with within(0.5):
                await suite.client.cancel(event["runId"])

        events = await ask(suite, ("approval.ask", cancel))
        assert events[-1]["type"] == "run.cancel"
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(events)
        assert (await ask(suite))[-1]["type"] == "run.complete"
        assert suite.tools.requests == []


@pytest.mark.parametrize(("command", "is_asked"), [("sudo ls", True), ("ls", False)])
async def test_a_changed_approvals_file_applies_to_the_next_call(serve: Serve, command: str, is_asked: bool) -> None:
    look = call_tool("look", json.dumps({"command": command}))
    async with serve(look, ANSWER, **LISTED) as suite:
        offer(suite, "{}")
        await wait_for_rules()
        events = await ask_with_answers(suite, *([{"decision": "approve"}] if is_asked else []))
        assert last_result(suite).startswith("seen")
    assert ("approval.ask" in kinds(events, "approval")) == is_asked
    if is_asked:
        assert only(events, "approval.ask")["reason"] == "high risk: runs as another user"
        assert only(events, "approval.ask")["risk"] == "high"
