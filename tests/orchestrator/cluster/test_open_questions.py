"""A run is taken over while it waits for a person: what was asked stands, whatever is asked today."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.v1 import tools_pb2
from tests.orchestrator.calls.test_kinds import told
from tests.orchestrator.cluster.test_takeover import left, rest_of, run_of
from tests.orchestrator.conftest import BREAK, House, Open, as_json, call, content, finish
from tests.orchestrator.lifecycle.test_endings import all_ended
from tests.orchestrator.owners import again
from tests.orchestrator.people import CHAT, only, submit, tool
from tests.support.order import Event

ACT = call("act", '{"at":1}') + finish("tool_calls")
ANSWER = content("All ", "good.") + finish()
LISTED: dict[str, Any] = {"toolConfig": {"backends": ["act"]}}
ACTED = tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="acted"))

NOT_DONE = tools_pb2.CheckEffectResponse(state="not_done")


async def events_of_the_chat(it: House) -> list[Event]:
    await all_ended(it)
    return [as_json(event) for event in (await it.client.chat(CHAT)).events]


@pytest.mark.parametrize("today", ["allow", "deny"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_call_that_was_asked_about_waits_for_its_answer_when_the_rules_have_changed(
    house: Open, today: str, decision: str
) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        it.tools.tools.append(tool("act", "backend", approval="ask"))
        it.tools.plays["act"] = [[ACTED]]
        seen = await left(it, "approval.ask")
        it.tools.tools[0].approval = today
        it.tools.effects = [NOT_DONE]
        async with again(it) as client:
            assert await submit(it, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": decision})
            await rest_of(client, seen)
            events = await events_of_the_chat(it)
        assert (told(it) == "acted") == (decision == "approve")
        assert len(it.tools.requests) == (decision == "approve")
        assert only(events, "approval.answer")["decision"] == decision
        assert only(events, "gate.close")["state"] == "answered"


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_question_whether_a_call_runs_again_stands_when_nobody_reads_or_its_outcome_is_known(
    house: Open, is_known: bool
) -> None:
    async with house(ACT, ANSWER, **LISTED) as it:
        it.tools.tools.append(tool("act", "backend", effect="once"))
        it.tools.plays["act"] = [[BREAK], [ACTED]]
        seen = await left(it, "approval.ask")
        if is_known:
            it.tools.effects = [NOT_DONE]
        async with again(it):
            status = await submit(it, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": "reject"})
            assert status == "accepted"
            events = await events_of_the_chat(it)
        assert json.loads(told(it))["error"] == "unknown"
        assert len(it.tools.requests) == 1
        assert only(events, "approval.answer")["decision"] == "reject"
        assert only(events, "gate.close")["state"] == "answered"
