"""Waits for people as gates: opened, listed, answered, expired and cancelled, in the log and in events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, Overloaded, StaleLease
from headrace.v1 import common_pb2, gates_pb2, memory_pb2, tools_pb2
from services.runtime.rpc.call_ids import find_tool_credential
from tests.orchestrator.calls.test_kinds import told
from tests.orchestrator.conftest import House, Open, call, content, finish
from tests.orchestrator.lifecycle.test_endings import recorded
from tests.orchestrator.people import ask, kinds, only, tool
from tests.support.order import Event, fold

ANSWER = content("All ", "good.") + finish()
LISTED = {"toolConfig": {"backends": ["act", "fetch"], "frontends": ["confirm", "ask_human"]}}

SECRET = "hunter2-of-ada"
NEED = common_pb2.CredentialNeed(
    name="github", description="A token of GitHub", obtain="https://github.com/settings/tokens"
)


async def execute(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """What the tools service does: `fetch` runs with a credential alone, and `bad` is none."""
    given = find_tool_credential(NEED.name)
    outcome = tools_pb2.ToolOutcome(ok=True, result=f"{request.tool_name} has run")
    if request.tool_name == "fetch" and given in ("", "bad-one"):
        outcome = tools_pb2.ToolOutcome(ok=False, result="no credential", needs=NEED)
        outcome.needs.problem = "refused" if given else "missing"
    yield tools_pb2.ToolDelta(result=outcome)


GATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "approval": ("act", {"at": 1}, '{"decision": "approve"}'),
    "form": ("confirm", {"q": 1}, '{"ok": true}'),
    "question": ("ask_human", {"question": "Which?"}, '{"answer": "this"}'),
    "credential": ("fetch", {"n": 1}, f'{{"decision": "supply", "secret": "{SECRET}"}}'),
}
"""Tool, arguments and an answer, by the gate's kind."""


def offer(it: House, timeout_ms: int = 100_000) -> None:
    it.tools.tools += [
        tool("act", "backend", approval="ask"),
        tool("fetch", "backend"),
        tool("confirm", "frontend", timeout_ms=timeout_ms, viewport_key="confirm_view"),
    ]
    it.tools.execute = execute


def asking(kind: str) -> list[Any]:
    name, arguments, _ = GATES[kind]
    return call(name, json.dumps(arguments)) + finish("tool_calls")


async def run_of(it: House) -> str:
    [gate] = (await it.client.gates()).gates
    return gate.run_id


@pytest.mark.parametrize("kind", GATES)
async def test_what_waits_is_listed_and_its_answer_is_the_runs(kind: str, house: Open) -> None:
    name, arguments, payload = GATES[kind]
    shown: list[gates_pb2.Gate] = []
    async with house(asking(kind), ANSWER, **LISTED) as it:
        offer(it)

        async def answer(opened: Event) -> None:
            [listed] = (await it.client.gates()).gates
            shown.append(await it.client.gate(listed.run_id, opened["gateId"]))
            first = await it.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r1")
            again = await it.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r1")
            second = await it.client.answer_gate(listed.run_id, listed.gate_id, payload, request_id="r2")
            assert [reply.status for reply in (first, again)] == ["accepted", "accepted"]
            assert second.status in ("duplicate", "unmatched"), "unmatched when the run has ended meanwhile"
            assert listed.arguments == ""

        events = await ask(it, ("gate.open", answer))
        history = await recorded(it, it.run_ids[0])
        after = await it.client.gate(it.run_ids[0], shown[0].gate_id)
        late = [
            await it.client.answer_gate(it.run_ids[0], shown[0].gate_id, payload, request_id=request_id)
            for request_id in ("r1", "r2")
        ]
        assert [reply.status for reply in late] == ["accepted", "duplicate"], "the first repeats what was accepted"
        assert (await it.client.gates()).gates == []
        assert told(it)
    opened, closed, submitted = (only(events, kind) for kind in ("gate.open", "gate.close", "request.submit"))
    assert (opened["kind"], opened["agentKey"], opened["toolName"]) == (kind, "react", name)
    assert (shown[0].gate_id, shown[0].kind, shown[0].state) == (opened["gateId"], kind, "open")
    assert json.loads(shown[0].arguments) == arguments
    assert (shown[0].opened_at, shown[0].expires_at) == (opened["timestamp"], opened["expiresAt"])
    assert shown[0].viewport_key == {"form": "confirm_view", "question": "ask_human"}.get(kind, "")
    assert (after.state, after.answered_by, after.closed_at) == ("answered", "default", submitted["timestamp"])
    assert (closed["state"], closed["answeredBy"], closed["gateId"]) == ("answered", "default", opened["gateId"])
    assert kinds(events, "gate", "request.submit") == ["gate.open", "request.submit", "gate.close"]
    assert SECRET not in json.dumps([events, history]), "a secret is in no event"
    assert fold(history) == fold(events)
    for one in ("gate.open", "gate.close"):
        assert only(history, one) == only(events, one)


async def test_a_repeated_answer_is_answered_only_when_the_log_has_it(house: Open) -> None:
    async with house(asking("form"), ANSWER, **LISTED) as it, asyncio.TaskGroup() as group:
        offer(it)
        gate: list[str] = []
        repeated: list[asyncio.Task[gates_pb2.AnswerGateResponse]] = []

        async def before(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("request_submit") for line in request.lines):
                again = it.client.answer_gate(gate[0], gate[1], "1", request_id="r1")
                repeated.append(group.create_task(again))
                await asyncio.sleep(0.05)
                assert not repeated[0].done()

        async def answer(opened: Event) -> None:
            gate[:] = [await run_of(it), opened["gateId"]]
            it.memory.before = before
            assert (await it.client.answer_gate(gate[0], gate[1], "1", request_id="r1")).status == "accepted"

        await ask(it, ("gate.open", answer))
        assert (await repeated[0]).status == "accepted"


async def test_an_answer_to_a_run_that_has_moved_is_to_be_given_again(house: Open) -> None:
    async with house(asking("form"), ANSWER, **LISTED) as it:
        offer(it)

        async def before(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("request_submit") for line in request.lines):
                raise StaleLease("another process has the run")

        async with it.client.ask("hello", agent_key="react") as deltas:
            opened = ""
            while not opened:
                opened = (await anext(deltas)).gate_open.gate_id
            it.memory.before = before
            with pytest.raises(Overloaded, match="moved"):
                await it.client.answer_gate(await run_of(it), opened, "1", request_id="r1")


async def test_a_gate_that_another_process_has_opened_is_not_said_to_be_none(house: Open) -> None:
    async with house(asking("form"), ANSWER, **LISTED) as it:
        offer(it)

        async def add_another(request: memory_pb2.AppendRequest) -> None:
            opened = [line for line in request.lines if line.event.event.HasField("gate_open")]
            for line in opened:
                request.lines.add().CopyFrom(line)
                request.lines[-1].event.event.gate_open.gate_id = "t_other"

        async def answer(opened: Event) -> None:
            run_id = (await it.client.gates()).gates[0].run_id
            with pytest.raises(Overloaded, match="another process"):
                await it.client.answer_gate(run_id, "t_other", "1")
            with pytest.raises(Overloaded, match="another process"):
                await it.client.claim_gate(run_id, "t_other", "me")
            assert (await it.client.answer_gate(run_id, opened["gateId"], "1")).accepted

        it.memory.before = add_another
        await ask(it, ("gate.open", answer))


async def test_a_gate_without_an_answer_expires_once(house: Open) -> None:
    async with house(asking("form"), ANSWER, **LISTED) as it:
        offer(it, timeout_ms=100)
        events = await ask(it)
        opened, closed = only(events, "gate.open"), only(events, "gate.close")
        gate = await it.client.gate(it.run_ids[0], opened["gateId"])
        late = await it.client.answer_gate(it.run_ids[0], opened["gateId"], "1")
    assert (closed["state"], "answeredBy" in closed, late.status) == ("expired", False, "expired")
    assert (gate.state, gate.closed_at, gate.answered_by) == ("expired", closed["timestamp"], "")


async def test_the_end_of_the_run_cancels_its_gates(house: Open) -> None:
    async with house(asking("form"), ANSWER, **LISTED) as it:
        offer(it)

        async def cancel(_: Event) -> None:
            await it.client.cancel(await run_of(it))

        events = await ask(it, ("gate.open", cancel))
        gate = await it.client.gate(it.run_ids[0], only(events, "gate.open")["gateId"])
        assert (await it.client.gates()).gates == []
    assert (gate.state, kinds(events, "gate")) == ("cancelled", ["gate.open"])


async def test_an_answer_before_the_wait_opens_no_gate(house: Open) -> None:
    early = [*call("confirm", '{"q":1}'), 0.3, *finish("tool_calls")]
    async with house(early, ANSWER, **LISTED) as it:
        offer(it)

        async def answer(event: Event) -> None:
            assert (await it.client.answer_gate(event["runId"], event["toolId"], "1")).status == "accepted"

        events = await ask(it, ("tool.start", answer))
        assert told(it) == "1"
    assert kinds(events, "gate") == []


async def test_what_is_no_gate_is_said(house: Open) -> None:
    async with house(asking("approval"), ANSWER, **LISTED) as it:
        offer(it)

        async def answer(opened: Event) -> None:
            run_id = await run_of(it)
            assert (await it.client.answer_gate(run_id, "t_none", "1")).status == "unmatched"
            with pytest.raises(NotFound, match="no gate 't_none'"):
                await it.client.gate(run_id, "t_none")
            with pytest.raises(InvalidRequest, match="decision"):
                await it.client.answer_gate(run_id, opened["gateId"], '{"decision": "perhaps"}')
            assert (await it.client.answer_gate(run_id, opened["gateId"], '{"decision": "reject"}')).accepted

        await ask(it, ("gate.open", answer))
        assert json.loads(told(it))["error"] == "rejected"
