"""Gates for credentials that are missing: supplied, refused, rejected, expired, lost with the owner; never kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import tools_pb2
from tests.orchestrator.calls.test_gates import ANSWER, LISTED, NEED, SECRET, asking, offer
from tests.orchestrator.calls.test_kinds import told
from tests.orchestrator.conftest import House, Open, call, finish
from tests.orchestrator.owners import Crashes, again
from tests.orchestrator.people import ask, kinds, only
from tests.support.order import Event

BAD = "bad-one"


def supply(secret: str = SECRET) -> str:
    return json.dumps({"decision": "supply", "secret": secret})


async def answer(it: House, payload: str) -> str:
    [gate] = (await it.client.gates(scope="own")).gates
    return (await it.client.answer_gate(gate.run_id, gate.gate_id, payload)).status


def find_text(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_it_says_what_is_missing_and_the_secret_is_kept_nowhere(house: Open, tmp_path: Path) -> None:
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)

        async def supply_it(opened: Event) -> None:
            need = opened["need"]
            assert (need["name"], need["description"], need["obtain"]) == (NEED.name, NEED.description, NEED.obtain)
            assert (need["problem"], opened["reason"]) == ("missing", "github is missing: A token of GitHub")
            [gate] = (await it.client.gates(scope="own")).gates
            assert (await it.client.gate(gate.run_id, gate.gate_id)).need.obtain == NEED.obtain
            assert await answer(it, supply()) == "accepted"

        events = await ask(it, ("gate.open", supply_it), record=True)
        assert told(it) == "fetch has run"
        async with it.client.export_gates(it.chat_id, with_content=True) as lines:
            audit = [line async for line in lines]
        cassette = await it.client.cassette(it.run_ids[0])
    assert only(events, "request.submit")["payload"] == {"decision": "supply", "secret": "***"}
    assert any("***" in line for line in audit), "that one was supplied is told"
    for kept in (json.dumps(events), *audit, str(it.llm.raw_requests), str(cassette)):
        assert SECRET not in kept
    assert find_text(tmp_path, SECRET) == []
    assert find_text(tmp_path, "fetch has run"), "the search finds what is there"


async def test_one_that_is_refused_is_asked_for_anew(house: Open) -> None:
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)
        given = [BAD, BAD, SECRET]

        async def supply_next(opened: Event) -> None:
            assert opened["need"]["problem"] == ("missing" if len(given) == 3 else "refused")
            assert await answer(it, supply(given.pop(0))) == "accepted"

        events = await ask(it, *[("gate.open", supply_next)] * 3)
        assert told(it) == "fetch has run"
    assert len({event["gateId"] for event in events if event["type"] == "gate.open"}) == 3


async def test_whoever_rejects_tells_the_model_why(house: Open) -> None:
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)

        async def reject(_: Event) -> None:
            assert await answer(it, '{"decision": "reject", "note": "use the public one"}') == "accepted"

        await ask(it, ("gate.open", reject))
        assert "CREDENTIAL_MISSING" in told(it)
        assert "use the public one" in told(it)
        assert len(it.tools.requests) == 1


async def test_nobody_in_time_is_a_failure_of_the_tool(house: Open, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 50")
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)
        events = await ask(it)
        assert "nobody answered in time" in told(it)
    assert only(events, "gate.close")["state"] == "expired"


async def test_calls_of_one_answer_ask_once(house: Open) -> None:
    both = [step for one in ("1", "2") for step in call("fetch", f'{{"n": {one}}}', index=int(one) - 1, call_id=one)]
    async with house([*both, *finish("tool_calls")], ANSWER, **LISTED, react={"parallelToolCalls": True}) as it:
        offer(it)

        async def supply_it(_: Event) -> None:
            assert await answer(it, supply()) == "accepted"

        events = await ask(it, ("gate.open", supply_it))
        assert len(it.tools.requests) == 4
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
async def test_what_is_no_answer_is_refused_without_a_word_of_it(payload: str, field: str, house: Open) -> None:
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)

        async def try_it(_: Event) -> None:
            with pytest.raises(InvalidRequest) as refused:
                await answer(it, payload)
            assert refused.value.metadata["field"] == field
            assert SECRET not in str(refused.value)
            assert await answer(it, supply()) == "accepted"

        await ask(it, ("gate.open", try_it))
        assert told(it) == "fetch has run"


async def test_whoever_takes_the_run_over_asks_again_for_what_died_with_its_owner(house: Open) -> None:
    async with house(asking("credential"), ANSWER, **LISTED) as it:
        offer(it)
        it.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        crashes = Crashes(it)
        asked: list[str] = []

        async def follow() -> None:
            async with it.client.ask("hello", agent_key="react") as deltas:
                async for delta in deltas:
                    if delta.HasField("gate_open"):
                        [gate] = (await it.client.gates(scope="own")).gates
                        asked.append(gate.run_id)
                        crashes.kill_at(crashes.appends[gate.run_id] + 1)  # the answer is kept, and nothing after it
                        assert await answer(it, supply()) == "accepted"

        following = asyncio.create_task(follow())
        await asyncio.wait([following])
        await it.stop()
        async with again(it) as client, asyncio.timeout(100):
            while not (gates := [gate for gate in (await client.gates(scope="own")).gates if gate.state == "open"]):
                await asyncio.sleep(0.02)
            assert (gates[0].run_id, gates[0].kind) == (asked[0], "credential")
            await client.answer_gate(gates[0].run_id, gates[0].gate_id, supply())
            async with client.attach(asked[0]) as deltas:
                events = [delta async for delta in deltas]
        assert told(it) == "fetch has run"
    opened = [delta.gate_open.gate_id for delta in events if delta.HasField("gate_open")]
    closed = [delta.gate_close.gate_id for delta in events if delta.HasField("gate_close")]
    assert len(set(opened)) == 2
    assert sorted(opened) == sorted(closed)
