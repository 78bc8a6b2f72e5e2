"""Gates for credentials that are missing: supplied, refused, rejected, expired, lost with the owner; never kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, Suite, ask, kinds, only
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.files import find_text
from tests.support.orchestrator.gates import LISTED, NEED, SECRET, asking, offer
from tests.support.orchestrator.requests import last_result
from tests.support.orchestrator.steps import ANSWER, call, finish
from tests.support.order import Event

BAD = "bad-one"


def supply(secret: str = SECRET) -> str:
    return json.dumps({"decision": "supply", "secret": secret})


async def answer(suite: Suite, payload: str) -> str:
    [gate] = (await suite.client.gates(scope="own")).gates
    return (await suite.client.answer_gate(gate.run_id, gate.gate_id, payload)).status


async def test_it_says_what_is_missing_and_the_secret_is_kept_nowhere(serve: Serve, tmp_path: Path) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)

        async def supply_it(opened: Event) -> None:
            need = opened["need"]
            assert (need["name"], need["description"], need["obtain"]) == (NEED.name, NEED.description, NEED.obtain)
            assert (need["problem"], opened["reason"]) == ("missing", "github is missing: A token of GitHub")
            [gate] = (await suite.client.gates(scope="own")).gates
            assert (await suite.client.gate(gate.run_id, gate.gate_id)).need.obtain == NEED.obtain
            assert await answer(suite, supply()) == "accepted"

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
            assert await answer(suite, supply(given.pop(0))) == "accepted"

        events = await ask(suite, *[("gate.open", supply_next)] * 3)
        assert last_result(suite) == "fetch has run"
    assert len({event["gateId"] for event in events if event["type"] == "gate.open"}) == 3


async def test_whoever_rejects_tells_the_model_why(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
        offer(suite)

        async def reject(_: Event) -> None:
            assert await answer(suite, '{"decision": "reject", "note": "use the public one"}') == "accepted"

        await ask(suite, ("gate.open", reject))
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

        async def supply_it(_: Event) -> None:
            assert await answer(suite, supply()) == "accepted"

        events = await ask(suite, ("gate.open", supply_it))
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

        async def try_it(_: Event) -> None:
            with pytest.raises(InvalidRequest) as refused:
                await answer(suite, payload)
            assert refused.value.metadata["field"] == field
            assert SECRET not in str(refused.value)
            assert await answer(suite, supply()) == "accepted"

        await ask(suite, ("gate.open", try_it))
        assert last_result(suite) == "fetch has run"


async def test_whoever_takes_the_run_over_asks_again_for_what_died_with_its_owner(serve: Serve) -> None:
    async with serve(asking("credential"), ANSWER, **LISTED) as suite:
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
                        assert await answer(suite, supply()) == "accepted"

        following = asyncio.create_task(follow())
        await asyncio.wait([following])
        await suite.stop()
        async with restart(suite) as client, asyncio.timeout(100):
            while not (gates := [gate for gate in (await client.gates(scope="own")).gates if gate.state == "open"]):
                await asyncio.sleep(0.02)
            assert (gates[0].run_id, gates[0].kind) == (asked[0], "credential")
            await client.answer_gate(gates[0].run_id, gates[0].gate_id, supply())
            async with client.attach(asked[0]) as deltas:
                events = [delta async for delta in deltas]
        assert last_result(suite) == "fetch has run"
    opened = [delta.gate_open.gate_id for delta in events if delta.HasField("gate_open")]
    closed = [delta.gate_close.gate_id for delta in events if delta.HasField("gate_close")]
    assert len(set(opened)) == 2
    assert sorted(opened) == sorted(closed)
