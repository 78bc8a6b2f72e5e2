"""Gates for credentials that are missing: supplied, refused, rejected, expired, lost with the owner; never kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import tools_pb2
from tests.support.orchestrator import ANSWER, Serve, answers, ask, call, finish, kinds, last_result, only, read
from tests.support.orchestrator.files import find_text
from tests.support.orchestrator.gate_runs import owner_dying_after
from tests.support.orchestrator.gates import LISTED, NEED, SECRET, asking, offer
from tests.support.order import Event

BAD = "bad-one"


def supply(secret: str = SECRET) -> dict[str, str]:
    return {"decision": "supply", "secret": secret}


async def test_it_says_what_is_missing_and_the_secret_is_kept_nowhere(serve: Serve, tmp_path: Path) -> None:
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
    assert any("***" in line for line in audit), "that one was supplied is told"
    for kept in (json.dumps(events), *audit, str(suite.llm.raw_requests), str(cassette)):
        assert SECRET not in kept
    assert find_text(tmp_path, SECRET) == []
    assert find_text(tmp_path, "fetch has run"), "the search finds what is there"


async def test_one_that_is_refused_is_asked_for_anew(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        given = [BAD, BAD, SECRET]

        async def supply_next(opened: Event) -> None:
            assert opened["need"]["problem"] == ("missing" if len(given) == 3 else "refused")
            await answers(suite, supply(given.pop(0)))(opened)

        events = await ask(suite, *[("gate.open", supply_next)] * 3)
        assert last_result(suite) == "fetch has run"
    assert len({event["gateId"] for event in events if event["type"] == "gate.open"}) == 3


async def test_whoever_rejects_tells_the_model_why(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        reject = {"decision": "reject", "note": "use the public one"}
        await ask(suite, ("gate.open", answers(suite, reject)))
        assert "CREDENTIAL_MISSING" in last_result(suite)
        assert "use the public one" in last_result(suite)
        assert len(suite.tools.requests) == 1


async def test_nobody_in_time_is_a_failure_of_the_tool(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 50")
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask(suite)
        assert "nobody answered in time" in last_result(suite)
    assert only(events, "gate.close")["state"] == "expired"


async def test_calls_of_one_answer_ask_once(serve: Serve) -> None:
    both = [step for one in ("1", "2") for step in call("fetch", f'{{"n": {one}}}', index=int(one) - 1, call_id=one)]
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
async def test_what_is_no_answer_is_refused_without_a_word_of_it(payload: str, field: str, serve: Serve) -> None:
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


async def test_whoever_takes_the_run_over_asks_again_for_what_died_with_its_owner(serve: Serve) -> None:
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
