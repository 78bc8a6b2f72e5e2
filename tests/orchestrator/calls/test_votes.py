"""Several must approve, and may edit: votes are in the log, nobody counts twice, and edits are judged as calls are."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied, QueueFull
from headrace.v1 import gates_pb2, memory_pb2, tools_pb2
from services.orchestrator.run.control.gates import NOTES_MAX
from services.runtime.clock import now_ms
from tests.support.orchestrator import ANSWER, Serve, Suite, call_tool, only, tool, two_replicas
from tests.support.orchestrator.answerers import APPROVE, KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.gate_runs import killing_owner, read_as, reading_run, waiting_run
from tests.support.order import Event
from tests.support.waiting import wait_until

TWO = {"any_of": ["tenant"], "count": 2}
EDIT = '{"decision": "edit", "arguments": {"at": 9}}'


async def answer(address: str, name: str, gate: tuple[str, str], payload: str = APPROVE, **fields: Any) -> str:
    """Answer as `name`; return the status, with how many are missing."""
    async with as_user(address, name) as client:
        answered = await client.answer_gate(*gate, payload, **fields)
    assert answered.accepted == (answered.status in ("accepted", "voted"))
    return answered.status + (f" {answered.votes_missing}" if answered.HasField("votes_missing") else "")


async def see(address: str, name: str, gate: tuple[str, str]) -> gates_pb2.Gate:
    async with as_user(address, name) as client:
        [listed] = [one for one in (await client.gates()).gates if one.gate_id == gate[1]]
    return listed


def list_votes(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["by"], event["decision"]) for event in events if event["type"] == "gate.step"]


def arguments(suite: Suite) -> list[Any]:
    return [json.loads(request.arguments) for request in suite.tools.requests]


async def test_the_call_runs_when_as_many_different_users_have_approved(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 1"
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 1"
        assert await answer(suite.address, "bob", gate, request_id="r2") == "duplicate"
        listed = await see(suite.address, "cleo", gate)
        assert ([*listed.voters], listed.answerers.count) == (["bob"], 2)
        assert suite.tools.requests == []
        assert await answer(suite.address, "cleo", gate) == "accepted"
        events = await run
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 0"
    assert list_votes(events) == [("bob", "approve")]
    assert only(events, "gate.step")["credential"].startswith("api_key:")
    assert only(events, "request.submit")["by"] == only(events, "approval.answer")["by"] == "cleo"
    assert arguments(suite) == [{"at": 1}]


async def test_whoever_names_the_approval_as_a_call_has_one_vote_too(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, (run_id, gate_id), _):
        async with as_user(suite.address, "bob") as bob:
            assert (await bob.submit(run_id, APPROVE, tool_id=gate_id)).status == "voted"
        assert suite.tools.requests == []
        async with as_user(suite.address, "cleo") as cleo:
            assert (await cleo.submit(run_id, APPROVE, tool_id=gate_id)).status == "accepted"


async def test_one_reject_rejects(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate) == "voted 1"
        assert await answer(suite.address, "cleo", gate, '{"decision": "reject"}') == "accepted"
        events = await run
    assert only(events, "approval.answer")["decision"] == "reject"
    assert suite.tools.requests == []


async def test_an_edit_begins_the_count_anew_as_all_must_approve_the_same(serve: Serve) -> None:
    async with waiting_run(serve, {"any_of": ["tenant"], "count": 3}) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate) == "voted 2"
        assert await answer(suite.address, "cleo", gate, EDIT) == "voted 2"
        assert await answer(suite.address, "cleo", gate, EDIT) == "duplicate"
        assert await answer(suite.address, "cleo", gate) == "duplicate"
        assert [*(await see(suite.address, "bob", gate)).voters] == ["cleo"]
        async with as_user(suite.address, "ada") as ada:
            assert json.loads((await ada.gate(*gate)).arguments) == {"at": 9}, "which are to be approved now"
        for name in ("bob", "ada"):
            with pytest.raises(InvalidRequest, match=r"payload.arguments: a vote has changed the arguments"):
                await answer(suite.address, name, gate)
        assert await answer(suite.address, "bob", gate, EDIT[:-1] + ', "note": "fine"}') == "voted 1"
        assert await answer(suite.address, "ada", gate, EDIT) == "accepted"
        events = await run
    assert list_votes(events) == [("bob", "approve"), ("cleo", "edit"), ("bob", "approve")]
    assert only(events, "approval.answer")["note"] == "fine"
    assert arguments(suite) == [{"at": 9}]


async def test_votes_hold_when_the_owner_is_killed_between_them(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, {"any_of": ["tenant"], "count": 3})
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            assert await answer(b.address, "bob", gate, EDIT, request_id="r1") == "voted 2"
        assert await answer(b.address, "bob", gate, EDIT, request_id="r1") == "voted 2"
        assert await answer(b.address, "bob", gate) == "duplicate"
        assert [*(await see(b.address, "cleo", gate)).voters] == ["bob"]
        with pytest.raises(InvalidRequest):
            await answer(b.address, "cleo", gate)
        assert await answer(b.address, "cleo", gate, EDIT) == "voted 1"
        assert await answer(b.address, "ada", gate, EDIT) == "accepted"
        assert (await read_as(b.address, "ada", gate[0]))[-1]["type"] == "run.complete"
    assert arguments(suite) == [{"at": 9}]


async def test_a_vote_on_its_way_to_the_log_counts_when_the_time_is_over(serve: Serve, tmp_path: Path) -> None:
    rule = "{pattern: x, then: ask, onExpiry: approve, answerers: {anyOf: [tenant], count: 2}}"
    (tmp_path / "approvals.yaml").write_text(f"answerTimeoutMs: 2000\ntools: {{act: [{rule}]}}\n")
    turn = call_tool("act", '{"at": "x"}')
    async with serve(turn, ANSWER, keys=KEYS, **LISTED) as suite:
        suite.tools.tools = [tool("act", "backend")]

        async def hold_vote(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("gate_step") for line in request.lines):
                await wait_until(lambda: now_ms() >= expires_at + 500)

        suite.memory.before = hold_vote
        async with reading_run(suite.client) as (gate, asked, run):
            expires_at = only(asked.events, "gate.open")["expiresAt"]
            assert await answer(suite.address, "bob", gate) == "voted 1"
        events = await run
        assert suite.tools.requests == []
    assert only(events, "approval.answer")["decision"] == "reject"


async def test_a_request_id_is_its_user_s_and_its_kind_s(serve: Serve) -> None:
    async with waiting_run(serve, {"any_of": ["tenant"], "count": 3}) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            assert await bob.ask_back(*gate, "what for?", request_id="r1") == "asked_back"
            assert await bob.delegate_gate(*gate, ["user:cleo"], request_id="r1") == "delegated"
        for name, missing in ("bob", 2), ("cleo", 1), ("cleo", 1):
            assert await answer(suite.address, name, gate, request_id="r1") == f"voted {missing}"
        assert await answer(suite.address, "ada", gate, request_id="r1") == "accepted"
        for name, status in ("operator", "duplicate"), ("bob", "voted 0"), ("ada", "accepted"):
            assert await answer(suite.address, name, gate, request_id="r1") == status, name
        events = await run
        for name, status in ("operator", "duplicate"), ("bob", "voted 0"), ("ada", "accepted"):
            assert await answer(suite.address, name, gate, request_id="r1") == status, name
    steps = [(event["step"], event["by"]) for event in events if event["type"] == "gate.step"]
    assert steps == [("asked_back", "bob"), ("delegated", "bob"), ("vote", "bob"), ("vote", "cleo")]


async def test_notes_leave_room_for_votes_and_votes_of_long_arguments_are_refused(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            for _ in range(NOTES_MAX):
                await bob.ask_back(*gate, "why?")
            with pytest.raises(QueueFull, match="100 delegations and questions"):
                await bob.delegate_gate(*gate, ["user:cleo"])
        long = json.dumps({"decision": "edit", "arguments": {"at": "x" * 65_536}})
        with pytest.raises(InvalidRequest, match=r"payload.arguments: must have at most 65,536 bytes"):
            await answer(suite.address, "bob", gate, long)
        assert await answer(suite.address, "bob", gate) == "voted 1"
        assert await answer(suite.address, "cleo", gate) == "accepted"
        assert (await run)[-1]["type"] == "run.complete"


SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "integer"}, "to": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "required": ["at"],
}

RULES = """
tools:
  act:
    - {pattern: nowhere, then: deny}
    - {pattern: far, then: ask, answerers: {anyOf: ["user:cleo"]}}
"""

REFUSED = {
    "a field's type": ({"at": "there"}, "payload.arguments.at", 'the value is not of type "integer"'),
    "a field inside": ({"at": 1, "to": {"name": 7}}, "payload.arguments.to.name", "is not of type"),
    "a field that is missing": ({}, "payload.arguments", '"at" is a required property'),
    "a rule that denies": ({"at": 1, "to": {"name": "nowhere"}}, "payload.arguments", "nowhere"),
}
"""Edited arguments, the field that the error names, and what it says."""


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[Suite]:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite:
        fields = {"answerers": {"any_of": ["tenant"]}, "parameters": json.dumps(SCHEMA)}
        suite.tools.tools.append(tool("act", "backend", approval="ask", **fields))
        yield suite


async def try_edit(address: str, name: str, gate: tuple[str, str], arguments: Any) -> str:
    """Return the status; raises what the edit is refused with."""
    async with as_user(address, name) as client:
        return (await client.answer_gate(*gate, json.dumps({"decision": "edit", "arguments": arguments}))).status


async def test_edited_arguments_that_schema_or_rules_refuse_leave_the_gate_open(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving(serve) as suite, reading_run(suite.client) as (gate, _, run):
        for name, (arguments, field, said) in REFUSED.items():
            with pytest.raises(InvalidRequest, match=re.escape(said)) as refused:
                await try_edit(suite.address, "bob", gate, arguments)
            assert refused.value.metadata["field"] == field, name
            assert "there" not in refused.value.message, "the value is not in the error"
            async with as_user(suite.address, "bob") as client:
                assert (await client.gate(*gate)).state == "open", name
        assert await try_edit(suite.address, "bob", gate, {"at": 2}) == "accepted"
        events = await run
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 2}
    assert (only(events, "approval.answer")["decision"], only(events, "approval.answer")["by"]) == ("edit", "bob")


async def test_arguments_for_which_the_rules_ask_others_need_one_who_is_of_both(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    far = {"at": 1, "to": {"name": "far"}}
    async with serving(serve) as suite, reading_run(suite.client) as (gate, _, run):
        with pytest.raises(PermissionDenied, match="user:cleo"):
            await try_edit(suite.address, "bob", gate, far)
        assert await try_edit(suite.address, "cleo", gate, far) == "accepted"
        events = await run
    assert only(events, "request.submit")["by"] == "cleo"


async def test_a_replica_that_takes_the_run_over_judges_the_edit_too(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving(serve) as suite, two_replicas(suite) as (a, b):
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            with pytest.raises(InvalidRequest):  # the owner lives: the other replica passes it on
                await try_edit(b.address, "bob", gate, {"at": "there"})
        with pytest.raises(InvalidRequest):
            await try_edit(b.address, "bob", gate, {"at": "there"})
        assert await try_edit(b.address, "bob", gate, {"at": 5}) == "accepted"
        assert (await read_as(b.address, "ada", gate[0]))[-1]["type"] == "run.complete"
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 5}
