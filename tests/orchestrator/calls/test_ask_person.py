"""A person is asked about a call: approve, edit, reject, nobody, cancel; several calls each for itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.orchestrator.calls.test_kinds import told
from tests.orchestrator.conftest import House, Open, call, content, finish
from tests.orchestrator.lifecycle.test_endings import recorded
from tests.orchestrator.people import Act, ask, kinds, only, state, submit, tool
from tests.support.order import Event, fold
from tests.support.timing import within

ANSWER = content("All ", "good.") + finish()
ACT = call("act", '{"at":1}') + finish("tool_calls")
LISTED = {"toolConfig": {"backends": ["look", "act", "never"]}}
PARALLEL = {"react": {"parallelToolCalls": True}}


def offer(it: House, rules: str | None = None) -> None:
    it.tools.tools += [tool("act", "backend", approval="ask"), tool("never", "backend", approval="deny")]
    if rules is not None:
        (it.agents.parent / "approvals.yaml").write_text(rules)


async def decided(it: House, *answers: dict[str, Any], **fields: Any) -> list[Event]:
    """A run whose approvals are answered in order."""
    run_id: list[str] = []

    async def note(event: Event) -> None:
        run_id.append(event["runId"])

    def answering(payload: dict[str, Any]) -> Act:
        async def answer(event: Event) -> None:
            assert await submit(it, run_id[0], event["approvalId"], payload) == "accepted"

        return answer

    acts = [("approval.ask", answering(payload)) for payload in answers]
    return await ask(it, ("run.start", note), *acts, **fields)


async def test_an_approved_call_runs_and_all_of_it_is_in_the_log(house: Open) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        offer(it)
        events = await decided(it, {"decision": "approve", "by": "Ada"})
        history = await recorded(it, it.run_ids[0])
        assert told(it) == 'seen {"at":1}'
    asked, answered = only(events, "approval.ask"), only(events, "approval.answer")
    assert (asked["toolId"], asked["reason"], asked["risk"]) == ("call_1", "act is defined with approval ask", "low")
    # Without credentials everybody is one user, whatever name the payload has; that stays in it as it was sent.
    assert (answered["decision"], answered["by"], "credential" in answered) == ("approve", "default", False)
    submitted = only(events, "request.submit")
    assert (submitted["by"], submitted["payload"]) == ("default", {"decision": "approve", "by": "Ada"})
    assert kinds(events, "approval", "request.submit") == ["approval.ask", "request.submit", "approval.answer"]
    for kind in ("approval.ask", "approval.answer", "request.submit"):
        assert only(history, kind) == only(events, kind)
    assert fold(history) == fold(events)


async def test_an_edited_call_runs_with_the_new_arguments_and_the_model_is_told(house: Open) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        offer(it)
        big = 123456789012345678901
        await decided(it, {"decision": "edit", "arguments": {"at": big}, "note": "not there"})
        [request] = it.tools.requests
        assert json.loads(request.arguments) == {"at": big}
        assert told(it).startswith("seen ")
        assert "a person changed the arguments" in told(it)
        assert told(it).endswith("not there]")


async def test_a_rejected_call_does_not_run_and_its_note_reaches_the_model(house: Open) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        offer(it)
        await decided(it, {"decision": "reject", "note": "ask me tomorrow"})
        assert it.tools.requests == []
        assert told(it) == '{"ok":false,"executed":false,"error":"rejected","message":"ask me tomorrow"}'


async def test_nobodys_answer_is_a_reject(house: Open) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        offer(it)
        (it.agents.parent / "approvals.yaml").write_text("answerTimeoutMs: 150")
        await rules_in_force()
        events = await ask(it)
        assert it.tools.requests == []
        assert "nobody answered within 0.15 s" in told(it)
        assert only(events, "approval.answer")["decision"] == "reject"
        asked = only(events, "approval.ask")
        assert await submit(it, events[-1]["runId"], asked["approvalId"], {"decision": "approve"}) == "expired"


async def test_nobodys_answer_approves_where_the_rule_says_so(house: Open) -> None:
    async with house(call("act", '{"at":"x"}') + finish("tool_calls"), ANSWER, **LISTED) as it:
        offer(it)
        rule = 'tools: {act: [{pattern: "", argument: at, then: ask, onExpiry: approve}]}'
        (it.agents.parent / "approvals.yaml").write_text(f"answerTimeoutMs: 150\n{rule}")
        await rules_in_force()
        events = await ask(it)
        assert len(it.tools.requests) == 1, "the call has run"
        assert "a person" not in told(it), "nobody has said anything"
    answer, closed = only(events, "approval.answer"), only(events, "gate.close")
    assert (answer["decision"], "by" in answer, closed["state"]) == ("approve", False, "expired")
    assert answer["note"] == "nobody answered within 0.15 s, and the rule approves then"
    assert only(events, "gate.open")["onExpiry"] == "approve"


async def rules_in_force() -> None:
    """Return when approvals.yaml has been read again: the watcher looks every 300 ms, twice."""
    await asyncio.sleep(0.8)


async def test_a_denied_call_is_a_result(house: Open) -> None:
    async with house(call("never") + finish("tool_calls"), ANSWER, **LISTED) as it:
        offer(it)
        events = await ask(it)
        assert it.tools.requests == []
        assert json.loads(told(it))["error"] == "denied"
    assert kinds(events, "approval") == []


async def test_several_calls_are_decided_each_for_itself(house: Open) -> None:
    three = call("act", '{"n":1}') + call("look", '{"n":2}', index=1, call_id="b")
    three += call("act", '{"n":3}', index=2, call_id="c") + call("never", index=3, call_id="d")
    async with house(three + finish("tool_calls"), ANSWER, **LISTED, **PARALLEL) as it:
        offer(it)
        events = await decided(it, {"decision": "reject"}, {"decision": "approve"})
        results = {event["toolId"]: event["ok"] for event in events if event["type"] == "tool.result"}
        assert told(it)
    assert results.pop("b") is True
    assert results.pop("d") is False
    assert sorted(results.values()) == [False, True]
    assert len(it.tools.requests) == 2


async def test_a_cancel_while_a_person_is_asked_ends_the_run_at_once(house: Open) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        offer(it)
        run_id: list[str] = []

        async def note(event: Event) -> None:
            run_id.append(event["runId"])

        async def cancel(_: Event) -> None:
            assert await state(it, run_id[0]) == "waiting"
            async with within(0.5):
                await it.client.cancel(run_id[0])

        events = await ask(it, ("run.start", note), ("approval.ask", cancel))
        assert events[-1]["type"] == "run.cancel"
        assert fold(await recorded(it, it.run_ids[0])) == fold(events)
        assert (await ask(it))[-1]["type"] == "run.complete"
        assert it.tools.requests == []


@pytest.mark.parametrize(("command", "asked"), [("sudo ls", True), ("ls", False)])
async def test_risks_of_a_changed_file_hold_for_the_next_call(house: Open, command: str, asked: bool) -> None:
    look = call("look", json.dumps({"command": command})) + finish("tool_calls")
    async with house(look, ANSWER, **LISTED) as it:
        offer(it, "{}")
        await rules_in_force()
        events = await decided(it, *([{"decision": "approve"}] if asked else []))
        assert told(it).startswith("seen")
    assert ("approval.ask" in kinds(events, "approval")) == asked
    if asked:
        assert only(events, "approval.ask")["reason"] == "high risk: runs as another user"
        assert only(events, "approval.ask")["risk"] == "high"
