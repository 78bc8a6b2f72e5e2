"""A run is taken over while it waits for a person: what was asked stands, whatever is asked today."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.v1 import tools_pb2
from tests.support.orchestrator import CHAT, Serve, Suite, as_json, last_result, only, run_of, submit, tool
from tests.support.orchestrator.crashes import read_rest, restart, run_until
from tests.support.orchestrator.runs import wait_for_ends
from tests.support.orchestrator.steps import ANSWER, BREAK, call_tool
from tests.support.order import Event

ACT = call_tool("act", '{"at":1}')
LISTED: dict[str, Any] = {"toolConfig": {"backends": ["act"]}}
ACTED = tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="acted"))

NOT_DONE = tools_pb2.CheckEffectResponse(state="not_done")


async def events_of_the_chat(suite: Suite) -> list[Event]:
    await wait_for_ends(suite)
    return [as_json(event) for event in (await suite.client.chat(CHAT)).events]


@pytest.mark.parametrize("today", ["allow", "deny"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_call_that_was_asked_about_waits_for_its_answer_when_the_rules_have_changed(
    serve: Serve, today: str, decision: str
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", approval="ask"))
        suite.tools.plays["act"] = [[ACTED]]
        seen = await run_until(suite, "approval.ask")
        suite.tools.tools[0].approval = today
        suite.tools.effects = [NOT_DONE]
        async with restart(suite) as client:
            assert await submit(suite, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": decision})
            await read_rest(client, seen)
            events = await events_of_the_chat(suite)
        assert (last_result(suite) == "acted") == (decision == "approve")
        assert len(suite.tools.requests) == (decision == "approve")
        assert only(events, "approval.answer")["decision"] == decision
        assert only(events, "gate.close")["state"] == "answered"


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_question_whether_a_call_runs_again_stands_when_nobody_reads_or_its_outcome_is_known(
    serve: Serve, is_known: bool
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", effect="once"))
        suite.tools.plays["act"] = [[BREAK], [ACTED]]
        seen = await run_until(suite, "approval.ask")
        if is_known:
            suite.tools.effects = [NOT_DONE]
        async with restart(suite):
            status = await submit(suite, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": "reject"})
            assert status == "accepted"
            events = await events_of_the_chat(suite)
        assert json.loads(last_result(suite))["error"] == "unknown"
        assert len(suite.tools.requests) == 1
        assert only(events, "approval.answer")["decision"] == "reject"
        assert only(events, "gate.close")["state"] == "answered"
